import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { chmod, mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import Database from "libsql";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidNameError, InvalidOptionError } from "../../src/core/errors.js";
import {
  etcdGuard,
  fenceColumn,
  fencedEval,
  fencedSet,
  fencedWriteFile,
  fenceKeyOf,
  fenceTable,
  InvalidTokenError,
  memoryFence,
  mysqlFence,
  ownerColumn,
  postgresFence,
  raiseFile,
  type SqliteQueryable,
  StaleTokenError,
  sqliteFence,
  zooKeeperGuard,
} from "../../src/fence/index.js";

function folderOf(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-fence-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

type Sqlite = InstanceType<typeof Database>;

/** A database, and a way in that notes the statements it is sent. */
function counting(): { readonly db: Sqlite; readonly sent: string[]; readonly prepare: SqliteQueryable["prepare"] } {
  const db = new Database(":memory:");
  onTestFinished(() => void db.close());
  const sent: string[] = [];
  const prepare: SqliteQueryable["prepare"] = (sql) => {
    sent.push(sql);
    return db.prepare(sql);
  };
  return { db, sent, prepare };
}

test("holds of a semaphore are shown as they are: those who live write, those who ended do not", async () => {
  const locks = await connect("memory:");
  onTestFinished(() => locks.close());
  const fence = memoryFence();
  const semaphore = locks.semaphore("seats", 3);
  for (const options of [{}, { fence: "exact" }] as const) {
    const resource = `seats ${JSON.stringify(options)}`;
    const [one, two, three] = [
      await semaphore.acquire(options),
      await semaphore.acquire(options),
      await semaphore.acquire(options),
    ];
    for (const hold of [three, one, two]) await fence.accept(resource, hold);
    await two.release();
    const four = await semaphore.acquire(options);
    await fence.accept(resource, four);
    await fence.accept(resource, one);
    const late = fence.accept(resource, two);
    // The limit of a floor: an older permit lives, so the dead younger one is not told apart.
    if ("fence" in options) await expect(late).rejects.toThrow(StaleTokenError);
    else await late;
    await Promise.all([one, three, four].map((hold) => hold.release()));
    const five = await semaphore.acquire(options);
    await fence.accept(resource, five);
    for (const hold of [one, two, three, four])
      await expect(fence.accept(resource, hold)).rejects.toThrow(StaleTokenError);
    await five.release();
  }
});

test("the column variant costs no statement, the table variant one", async () => {
  const { db, sent, prepare } = counting();
  db.exec("CREATE TABLE item (id integer PRIMARY KEY, value text, fence bigint NOT NULL DEFAULT 0)");
  db.exec("INSERT INTO item (id) VALUES (1)");
  db.exec(fenceTable("sqlite"));
  const unfenced = (): void => void prepare("UPDATE item SET value = ? WHERE id = ?").run("a", 1);
  const column = (token: number): void => {
    const { set, where, check } = fenceColumn("sqlite", "item 1", token);
    check(prepare(`UPDATE item SET value = ?, ${set} WHERE id = ? AND ${where}`).run("b", 1).changes);
  };
  const table = (token: number): void => {
    sqliteFence({ prepare }).acceptSync("item 1", token);
    unfenced();
  };
  const statementsOf = (run: () => void): number => {
    sent.length = 0;
    run();
    return sent.length;
  };
  expect([statementsOf(unfenced), statementsOf(() => column(5)), statementsOf(() => table(5))]).toEqual([1, 1, 2]);
  // A refusal costs no more.
  expect(statementsOf(() => expect(() => column(4)).toThrow(StaleTokenError))).toBe(1);
  expect(statementsOf(() => expect(() => table(4)).toThrow(StaleTokenError))).toBe(1);
});

test("a strict fence accepts each token once", async () => {
  const { db } = counting();
  db.exec(fenceTable("sqlite", "strict"));
  for (const fence of [memoryFence({ strict: true }), sqliteFence(db, { strict: true, table: "strict" })]) {
    await fence.accept("r", 5);
    await expect(fence.accept("r", 5)).rejects.toThrow(StaleTokenError);
    await expect(fence.accept("r", 4)).rejects.toThrow(StaleTokenError);
    await fence.accept("r", 6);
    await fence.raise("r", 8);
    await fence.accept("r", 8);
    await expect(fence.accept("r", 8)).rejects.toThrow(StaleTokenError);
  }
  const { set, where } = fenceColumn("postgres", "r", 5, { strict: true, column: 'od"d' });
  expect([set, where]).toEqual(['"od""d" = GREATEST("od""d", 6)', '"od""d" <= 5']);
});

test("an owner's mark refuses who was overtaken after marking, and not who marks late", () => {
  const { db } = counting();
  db.exec("CREATE TABLE item (id integer PRIMARY KEY, value text, owner text)");
  db.exec("INSERT INTO item (id) VALUES (1)");
  const mine = (id: string, token: number) => ownerColumn("sqlite", "item 1", { id: id.repeat(22), token });
  const mark = (id: string): void => void db.prepare(`UPDATE item SET ${mine(id, 1).set} WHERE id = 1`).run();
  const write = (id: string): void => {
    const { where, check } = mine(id, 1);
    check(db.prepare(`UPDATE item SET value = ? WHERE id = 1 AND ${where}`).run(id).changes);
  };
  mark("a");
  write("a");
  mark("b");
  expect(() => write("a")).toThrow(StaleTokenError);
  write("b");
  // The stated weakness: ids have no order.
  mark("a");
  write("a");
  expect(() => write("b")).toThrow(StaleTokenError);
  expect(() => ownerColumn("sqlite", "item 1", { id: "x' OR '1'='1", token: 1 })).toThrow(InvalidOptionError);
});

test("tokens ahead of the clock are refused, unless they are said to have nothing to do with it", async () => {
  const clock = { now: () => 0, wallMs: () => 1_000_000, after: () => ({}), cancel: () => {} };
  const near = memoryFence({ clock, aheadMs: 1000 });
  await near.accept("r", 1_001_000_000);
  await expect(near.accept("r", 1_001_000_001)).rejects.toThrow(/ahead of the clock by 1000 ms/);
  await expect(near.raise("r", 1_001_000_001)).rejects.toThrow(InvalidTokenError);
  await near.accept("r", 1_001_000_000);
  await memoryFence({ clock, aheadMs: Infinity }).accept("r", Number.MAX_SAFE_INTEGER - 1);
});

test("what can be a token, its floor and its set is the same for every kind of fence, to the last number", async () => {
  const most = Number.MAX_SAFE_INTEGER - 1;
  const sixtyFour = Array.from({ length: 64 }, (_, n) => n + 1);
  const fine: unknown[] = [
    ...[1, most, { token: 1 }, { token: 7, floor: 1 }, { token: 7, floor: 7 }, { token: 7, live: undefined }],
    ...[
      { token: 7, live: [7] },
      { token: 64, live: sixtyFour },
      { token: 7, floor: 5, live: [5, 7, most] },
    ],
  ];
  const wrong: [part: string, ...given: unknown[]][] = [
    ["token", 0, -1, 0.5, NaN, Infinity, most + 1, "7", null, undefined, true, [], {}, { token: "7" }, { token: 0 }],
    ["floor", ...[0, -1, 6.5, 8, "7", null, most + 1].map((floor) => ({ token: 7, floor }))],
    ["live", ...["7", null, {}, [], [5], [7, 0], [7, "5"], [7, most + 1]].map((live) => ({ token: 7, live }))],
    ["live", { token: 64, live: [...sixtyFour, 65] }],
  ];
  const shownTo = async (given: unknown): Promise<void> => memoryFence({ aheadMs: Infinity }).accept("r", given as 7);
  for (const given of fine) await shownTo(given);
  for (const [part, ...all] of wrong) {
    for (const given of all) {
      const error: unknown = await shownTo(given).then(
        () => "accepted",
        (cause: unknown) => cause,
      );
      expect(error, JSON.stringify(given)).toBeInstanceOf(InvalidTokenError);
      expect(String(error), JSON.stringify(given)).toContain(part);
    }
  }
  for (const options of [{ strict: "yes" }, { strict: null }, { aheadMs: -1 }, { aheadMs: NaN }, { aheadMs: "5" }])
    await expect(memoryFence(options as object).accept("r", 5)).rejects.toThrow(InvalidOptionError);
  // A set says who else may write; nobody else may, to a strict fence.
  const strict = memoryFence({ strict: true });
  await strict.accept("r", { token: 7, floor: 5, live: [5, 7] });
  await expect(strict.accept("r", { token: 5, live: [5, 7] })).rejects.toThrow(StaleTokenError);
});

test("a column says of a hold only what it can: no set, a row's number that was counted, a claim's id as it is made", () => {
  expect(() => fenceColumn("sqlite", "r", { token: 7, floor: 5, live: [5, 7] })).toThrow(/lists all live tokens/);
  expect(() => fenceColumn("sqlite", "a\n", 7)).toThrow(InvalidNameError);
  expect(() => fenceColumn("sqlite", "r", 7, { colum: "f" } as object)).toThrow(/no such option/);
  expect(fenceColumn("sqlite", "r", { token: 7, floor: 5 })).toMatchObject({
    ...{ set: '"fence" = MAX("fence", 5)', where: '"fence" <= 7' },
    ...{ token: 7, floor: 5 },
  });
  const { check } = fenceColumn("sqlite", "r", 7);
  for (const changed of [1, 1n, 2]) check(changed);
  check(0, 0);
  for (const changed of [0, 0n]) expect(() => check(changed)).toThrow(StaleTokenError);
  for (const changed of [null, undefined, "1"])
    expect(() => check(changed as unknown as number)).toThrow(InvalidOptionError);

  const marked = (id: unknown, options = {}) => ownerColumn("sqlite", "r", { id: id as string, token: 7 }, options);
  for (const length of [22, 64]) expect(marked("a".repeat(length)).set).toBe(`"owner" = '${"a".repeat(length)}'`);
  expect(marked("a".repeat(22), { column: "mine" })).toMatchObject({ where: `"mine" = '${"a".repeat(22)}'` });
  for (const id of ["a".repeat(21), "a".repeat(65), 5, undefined]) expect(() => marked(id)).toThrow(/a claim's id/);
  expect(() => ownerColumn("sqlite", "r", null as never)).toThrow(/a claim's id/);
  expect(() => marked("a".repeat(22), { colum: "f" })).toThrow(/no such option/);
  expect(() => ownerColumn("sqlite", "a\n", { id: "a".repeat(22), token: 7 })).toThrow(InvalidNameError);
  expect(() => ownerColumn("sqlite", "r", { id: "a".repeat(22), token: 0 })).toThrow(InvalidTokenError);
});

test("a raise takes a number and no hold: a floor would say something else", async () => {
  const { db } = counting();
  db.exec(fenceTable("sqlite"));
  for (const fence of [memoryFence(), sqliteFence(db)]) {
    const hold = { token: 7, floor: 5 } as unknown as number;
    await expect(fence.raise("r", hold)).rejects.toThrow(InvalidTokenError);
    await fence.accept("r", 1);
  }
});

test("names and options are checked before anything is asked", async () => {
  const never = { query: () => expect.unreachable(), prepare: () => expect.unreachable() };
  for (const fence of [memoryFence(), postgresFence(never), mysqlFence(never), sqliteFence(never)]) {
    await expect(fence.accept("", 5)).rejects.toThrow(InvalidNameError);
    await expect(fence.raise("a\n", 5)).rejects.toThrow(InvalidNameError);
  }
  expect(() => memoryFence({ stict: true } as object)).toThrow(/no such option/);
  expect(() => postgresFence(never, { table: "" })).toThrow(InvalidOptionError);
  expect(() => fenceTable("oracle" as "mysql")).toThrow(InvalidOptionError);
  expect(() => fenceColumn("mysql", "r", 5).check(undefined)).toThrow(/number of rows/);
  expect(() => fenceColumn("mysql", "r", 5).check(1, 2)).toThrow(StaleTokenError);
  fenceColumn("mysql", "r", 5).check(2n, 2);
  expect(fenceTable("mysql", "a`b.c")).toContain("`a``b`.`c`");
  expect(() => zooKeeperGuard("/f", { data: Buffer.from("other"), version: 1 }, 5)).toThrow(/something else/);
  const silent = { eval: () => expect.unreachable() };
  await expect(fencedSet(silent, "key", 5 as unknown as string, 5)).rejects.toThrow(InvalidOptionError);
  await expect(fencedSet(silent, "key", "v", 5, { expireMs: 0 })).rejects.toThrow(InvalidOptionError);
  await expect(fencedEval(silent, { script: "", keys: ["a", "b"] }, 5)).rejects.toThrow(/fenceKey/);
});

test("a table's and a column's name are checked, and cannot end their statement", () => {
  for (const wrong of ["", 5, null, {}]) {
    const given = wrong as string;
    for (const dialect of ["postgres", "mysql", "sqlite"] as const) {
      expect(() => fenceTable(dialect, given)).toThrow(InvalidOptionError);
      expect(() => fenceColumn(dialect, "r", 5, { column: given })).toThrow(InvalidOptionError);
    }
  }
  expect(fenceTable("postgres", 'a"b.c')).toContain(' "a""b"."c" ');
  expect(fenceColumn("mysql", "r", { token: 7, floor: 5 }, { column: "a`b" })).toMatchObject({
    set: "`a``b` = GREATEST(`a``b`, 5)",
    where: "`a``b` <= 7",
  });
});

test("etcd is asked in these words, which other versions and languages share", () => {
  const at = (number: string): Buffer => Buffer.from(`mine/a%2Fb/${number}`);
  const { compare, success, check } = etcdGuard("a/b", { token: 7, floor: 5 }, { prefix: "mine/" });
  // Of etcd's description: target CREATE is 1, result EQUAL is 0.
  const nothing = { target: 1, result: 0, create_revision: "0" };
  expect(compare).toEqual([{ key: at("0000000000000008"), range_end: at(":"), ...nothing }]);
  expect(success).toEqual([
    { request_delete_range: { key: at("0000000000000000"), range_end: at("0000000000000005") } },
    { request_put: { key: at("0000000000000005"), value: Buffer.alloc(0) } },
  ]);
  check(true);
  expect(() => check(false)).toThrow(StaleTokenError);
  expect(String(etcdGuard("r", 7).compare[0]?.key)).toBe("holdfast-fence/r/0000000000000008");
  const largest = etcdGuard("r", Number.MAX_SAFE_INTEGER - 1, { aheadMs: Infinity });
  expect(String(largest.compare[0]?.key)).toBe("holdfast-fence/r/9007199254740991");
});

test("what follows from a ZooKeeper node is a create, a set or a check, and a node of something else is refused", () => {
  const seen = (state: unknown) => ({ data: Buffer.from(JSON.stringify(state)), version: 3 });
  const read = (operation: object): unknown =>
    "data" in operation ? { ...operation, data: JSON.parse(String(operation.data)) } : operation;
  const guard = (...args: Parameters<typeof zooKeeperGuard>): unknown => read(zooKeeperGuard(...args));
  const state = { fence: 5, newest: 7, live: [5, 7] };
  const made = { kind: "create", path: "/f", mode: "persistent" };
  expect(guard("/f", null, 5)).toEqual({ ...made, data: { fence: 5, newest: 0, live: [] } });
  const check = { kind: "check", path: "/f", version: 3 };
  expect(guard("/f", seen(state), 5)).toEqual(check);
  expect(guard("/f", seen(state), { token: 7, floor: 5, live: [5, 6, 7] })).toEqual(check);
  const set = { kind: "set", path: "/f", version: 3 };
  expect(guard("/f", seen(state), 6)).toEqual({ ...set, data: { ...state, fence: 6 } });
  expect(guard("/f", seen(state), { token: 8, floor: 5, live: [5, 8] })).toEqual({
    ...set,
    data: { fence: 5, newest: 8, live: [5, 8] },
  });
  expect(() => zooKeeperGuard("/f", seen(state), 4)).toThrow(StaleTokenError);
  const wrong = [{ fence: "5" }, { fence: 2 ** 53 }, { newest: null }, { newest: 0.5 }, { live: {} }, { live: "57" }];
  for (const part of wrong)
    expect(() => zooKeeperGuard("/f", seen({ ...state, ...part }), 9)).toThrow(/something else/);
  for (const other of [null, 5, "text", []])
    expect(() => zooKeeperGuard("/f", seen(other), 9)).toThrow(/something else/);
});

test("pitfall 40: a key and its fence are in the same slot", () => {
  expect(fenceKeyOf(["stock"])).toBe("{stock}:fence");
  expect(fenceKeyOf(["{shop}:stock"])).toBe("{shop}:stock:fence");
  for (const odd of ["a}b", "{}a", "a{b", ""]) expect(() => fenceKeyOf([odd])).toThrow(InvalidOptionError);
});

test("a fenced file keeps its mode, follows links, and leaves one marker behind", async () => {
  const folder = folderOf();
  const [path, alias] = [join(folder, "file"), join(folder, "alias")];
  await fencedWriteFile(path, "a", 5, { mode: 0o640 });
  expect((await stat(path)).mode & 0o777).toBe(0o640);
  await chmod(path, 0o604);
  await symlink(path, alias);
  await fencedWriteFile(alias, new TextEncoder().encode("b"), { token: 8, floor: 7, live: [7, 8] });
  expect((await stat(path)).mode & 0o777).toBe(0o604);
  await expect(fencedWriteFile(path, "stale", 6)).rejects.toThrow(StaleTokenError);
  await fencedWriteFile(path, "c", 9);
  expect(await readdir(`${path}.fence`)).toEqual(["floor-9"]);
  expect([await readFile(alias, "utf8"), (await readdir(folder)).toSorted()]).toEqual([
    "c",
    ["alias", "file", "file.fence"],
  ]);
});

test("whatever a crash leaves of a fenced write, the file is whole and the next writers go on", async () => {
  const path = join(folderOf(), "file");
  await fencedWriteFile(path, "old", 5);
  // Content but no marker; content and marker; a set's draft.
  await writeFile(`${path}.fence/write-6-dead`, "half");
  expect(await readFile(path, "utf8")).toBe("old");
  await fencedWriteFile(path, "still five", 5);
  await writeFile(`${path}.fence/floor-6`, "");
  await writeFile(`${path}.fence/draft-6-dead`, "[");
  expect(await readFile(path, "utf8")).toBe("still five");
  await expect(fencedWriteFile(path, "stale", 5)).rejects.toThrow(StaleTokenError);
  await fencedWriteFile(path, "seven", 7);
  expect(await readFile(path, "utf8")).toBe("seven");
  expect(await readdir(`${path}.fence`)).toEqual(["floor-7"]);
});

test("a write that cannot be done leaves no content behind", async () => {
  const path = join(folderOf(), "file");
  await mkdir(path);
  await expect(fencedWriteFile(path, "a", 5)).rejects.toThrow(/EISDIR|directory/);
  expect(await readdir(`${path}.fence`)).toEqual(["floor-5"]);
  await expect(fencedWriteFile(join(path, "none", "file"), "a", 5)).rejects.toThrow(/ENOENT/);
  await expect(raiseFile("", 5)).rejects.toThrow(InvalidOptionError);
});

/** Writes its token as fast as it can until it is refused; prints how often it could. */
const WRITER = `
import { fencedWriteFile } from "holdfast/fence";
const [path, token, times] = [process.argv[1], Number(process.argv[2]), Number(process.argv[3])];
let written = 0;
try {
  for (; written < times; written += 1) await fencedWriteFile(path, token + " " + "x".repeat(20_000) + " " + token, token);
} catch (error) {
  if (error.code !== "HOLDFAST_STALE_TOKEN") throw error;
}
console.log(written);
`;

test("processes that write one file: what is read is whole, and never older than what was read before", {
  timeout: 60_000,
}, async () => {
  const path = join(folderOf(), "file");
  const cwd = resolve(import.meta.dirname, "../..");
  const over = new AbortController();
  const reading = (async () => {
    let highest = 0;
    let reads = 0;
    while (!over.signal.aborted) {
      const text = await readFile(path, "utf8").catch(() => "0 0");
      const [first, , last] = [Number(text.split(" ")[0]), 0, Number(text.split(" ").at(-1))];
      expect(first).toBe(last);
      expect(first).toBeGreaterThanOrEqual(highest);
      highest = first;
      reads += 1;
    }
    return { highest, reads };
  })();
  const args = (token: number, times: number): string[] => [
    "--input-type=module",
    "-e",
    WRITER,
    path,
    String(token),
    String(times),
  ];
  // One is killed on the way, wherever it is.
  const killed = spawn(process.execPath, args(1, 1_000_000), { cwd, stdio: "ignore" });
  onTestFinished(() => void killed.kill("SIGKILL"));
  const runs = [2, 3, 4].map(async (token) => {
    await new Promise((resolve) => setTimeout(resolve, token * 300));
    const { stdout } = await promisify(execFile)(process.execPath, args(token, 150), { cwd });
    return Number(stdout);
  });
  setTimeout(() => killed.kill("SIGKILL"), 1000);
  const written = await Promise.all(runs);
  over.abort();
  const { highest, reads } = await reading;
  expect(written[2]).toBe(150);
  expect([highest, reads > 10]).toEqual([4, true]);
  expect(await readFile(path, "utf8")).toMatch(/^4 x+ 4$/);
});
