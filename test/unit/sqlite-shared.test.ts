import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { EngineEvent } from "../../src/core/engine.js";
import { EngineUnavailableError } from "../../src/core/errors.js";
import { type SqliteDatabase, sqliteEngine } from "../../src/engines/sqlite/index.js";
import { settle } from "../../src/testing/fake-clock.js";
import { claimOf, sqliteRig } from "./sqlite-rig.js";

/** Two engines on one file; the commits of the first fail when they are told to. */
async function pair() {
  const rig = sqliteRig();
  const failing: Error[] = [];
  const open = async (failures: Error[]) => {
    const real = rig.raw();
    const database: SqliteDatabase = {
      exec: (sql) => {
        const error = sql === "COMMIT" ? failures.shift() : undefined;
        if (error !== undefined) throw error;
        return real.exec(sql);
      },
      prepare: (sql) => real.prepare(sql),
      close: () => {},
    };
    const engine = sqliteEngine(database, { clock: rig.clock, machine: rig.machine() });
    onTestFinished(() => engine[Symbol.asyncDispose]());
    const events: EngineEvent[] = [];
    engine.listen((event) => events.push(event));
    await engine.ready();
    return { engine, events };
  };
  const [one, two] = [await open(failing), await open([])];
  const failCommit = (): void => void failing.push(Object.assign(new Error("disk"), { code: "SQLITE_IOERR_WRITE" }));
  /** Until what was sent to the other mailbox has arrived. */
  const told = async (): Promise<void> => {
    for (let n = 0; n < 3; n += 1) await rig.clock.advance(50);
    await settle();
  };
  return { one, two, failCommit, told, clock: rig.clock };
}

describe("a commit that fails", () => {
  test("tells nobody of what was not committed, then or later", async () => {
    const { one, two, failCommit, told } = await pair();
    await one.engine.claim(claimOf("n", "a"));
    await two.engine.claim(claimOf("n", "b"));
    failCommit();
    await expect(one.engine.release({ name: "n", id: "a" })).rejects.toBeInstanceOf(EngineUnavailableError);
    await one.engine.claim(claimOf("other", "c"));
    await told();
    expect(two.events.filter(({ kind }) => kind === "granted")).toEqual([]);
    expect(await one.engine.renew([{ name: "n", id: "a" }])).toMatchObject([{ kind: "granted" }]);
    expect(await one.engine.release({ name: "n", id: "a" })).toBe("released");
    await told();
    expect(two.events.filter(({ kind }) => kind === "granted")).toMatchObject([{ name: "n", id: "b" }]);
  });

  test("leaves nothing of it in what is remembered: a lease that was not extended ends", async () => {
    const { one, failCommit, clock } = await pair();
    await one.engine.claim(claimOf("n", "a", { leaseMs: 1_000 }));
    failCommit();
    const renewal = one.engine.renew([{ name: "n", id: "a", leaseMs: 60_000 }]);
    await expect(renewal).rejects.toBeInstanceOf(EngineUnavailableError);
    await clock.advance(1_001);
    expect((await one.engine.claim(claimOf("n", "b"))).kind).toBe("granted");
    expect(await one.engine.renew([{ name: "n", id: "a" }])).toEqual([{ kind: "gone" }]);
  });
});

describe("requests of one turn", () => {
  test("a copy of a claim that shares a transaction with its release is gone, and the name is free", async () => {
    const { one, two } = await pair();
    await one.engine.claim(claimOf("n", "a"));
    const answers = await Promise.all([
      one.engine.release({ name: "n", id: "a" }),
      one.engine.claim(claimOf("n", "a")),
      one.engine.renew([{ name: "n", id: "a" }]),
      one.engine.release({ name: "n", id: "a" }),
    ]);
    expect(answers).toEqual(["released", { kind: "gone" }, [{ kind: "gone", revoked: true }], "revoked"]);
    expect((await two.engine.claim(claimOf("n", "b"))).kind).toBe("granted");
  });

  test("one id under two names: a tombstone under one of them is none under the other", async () => {
    const { one } = await pair();
    await one.engine.release({ name: "released", id: "a" });
    const answers = await Promise.all([
      one.engine.claim(claimOf("other", "first")),
      one.engine.claim(claimOf("released", "a")),
      one.engine.claim(claimOf("other", "a")),
    ]);
    expect(answers.map(({ kind }) => kind)).toEqual(["granted", "gone", "queued"]);
  });

  test("each is told once, whatever the others of its transaction tell", async () => {
    const { one, two, told } = await pair();
    for (const name of ["a", "b", "c"]) await two.engine.claim(claimOf(name, "id"));
    await Promise.all(["a", "b", "c"].map((name) => one.engine.release({ name, id: "id" })));
    await told();
    const lost = two.events.filter(({ kind }) => kind === "lost");
    expect(lost).toEqual(["a", "b", "c"].map((name) => ({ kind: "lost", name, id: "id" })));
  });

  test("heartbeats for a hold and for a waiter in one call: the waiter is told when it is let in", async () => {
    const { one, two, told } = await pair();
    await one.engine.claim(claimOf("held", "a"));
    await two.engine.claim(claimOf("n", "first"));
    await one.engine.claim(claimOf("n", "b"));
    const heartbeats = [
      { name: "held", id: "a" },
      { name: "n", id: "b" },
    ];
    expect(await one.engine.renew(heartbeats)).toMatchObject([{ kind: "granted" }, { kind: "queued" }]);
    await two.engine.release({ name: "n", id: "first" });
    await told();
    expect(one.events).toMatchObject([{ kind: "granted", name: "n", id: "b" }]);
  });

  test("whoever is let in by a release is told so by the requests behind it", async () => {
    const { one } = await pair();
    await one.engine.claim(claimOf("n", "a"));
    await one.engine.claim(claimOf("n", "b"));
    const answers = await Promise.all([
      one.engine.release({ name: "n", id: "a" }),
      one.engine.renew([{ name: "n", id: "b" }]),
      one.engine.claim(claimOf("n", "c", { wait: false })),
    ]);
    expect(answers).toMatchObject(["released", [{ kind: "granted" }], { kind: "busy", holder: { client: "c" } }]);
  });

  test("a token that a quorum raised is the floor of none but its own claim", async () => {
    const { one } = await pair();
    const semaphore = { capacity: 3 };
    const [first, second] = [
      await one.engine.claim(claimOf("s", "a", semaphore)),
      await one.engine.claim(claimOf("s", "b", semaphore)),
    ];
    const tokens = [first, second].map((answer) => (answer.kind === "granted" ? answer.token : 0));
    const answers = await Promise.all([
      one.engine.claim(claimOf("s", "c", semaphore)),
      one.engine.renew([{ name: "s", id: "a", tokenAtLeast: 2 ** 52 }]),
      one.engine.claim(claimOf("s", "c", semaphore)),
    ]);
    expect(answers).toMatchObject([{ floor: tokens[0] }, [{ token: 2 ** 52 }], { floor: tokens[1] }]);
  });
});

test("the claims that are remembered are few: one that was written long ago is read from its row", async () => {
  const { one } = await pair();
  const parse = vi.spyOn(JSON, "parse");
  onTestFinished(() => parse.mockRestore());
  const parsed = async (name: string): Promise<number> => {
    parse.mockClear();
    await one.engine.renew([{ name, id: name }]);
    return parse.mock.calls.length;
  };
  for (let n = 0; n < 65; n += 1) await one.engine.claim(claimOf(`n${n}`, `n${n}`));
  expect([await parsed("n64"), await parsed("n1"), await parsed("n0")]).toEqual([0, 0, 1]);
});
