import { type ChildProcess, execFile, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { allBlocks } from "../docs/blocks.js";
import { until } from "../servers/process.js";
import { SHARED_STORES } from "../servers/stores.js";

type Tools = {
  prepare(version: number): string;
  compile(out: string, file: string, source: string): string;
  complaints(out: string): string[];
};
// By a path that the compiler does not follow: Nest is installed by it, on first use.
const tools = (await import(join(import.meta.dirname, "../../tools/nest/prepare.mjs"))) as Tools;

const run = promisify(execFile);
const VERSIONS = [11, 12];
const out = new Map(VERSIONS.map((version) => [version, tools.prepare(version)]));
const folderOf = (version: number): string => out.get(version) ?? "";
const program = (version: number, file: string): string => join(folderOf(version), file);

/** The programs of the pages that need what is installed in tools/nest. */
const quickStarts = allBlocks().filter(({ page, code }) => page === "docs/nest.md" || code.includes('"node-cron"'));

type Server = {
  readonly process: ChildProcess;
  readonly name: string;
  call(path: string, method?: string): Promise<Response>;
};

async function fleet(version: number, store: keyof typeof SHARED_STORES, names: readonly string[], file = "server.js") {
  const { url, stop } = await SHARED_STORES[store]();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-nest-log-"));
  const log = join(folder, "log");
  const children: ChildProcess[] = [];
  onTestFinished(async () => {
    for (const child of children) child.kill("SIGKILL");
    await stop();
    rmSync(folder, { recursive: true, force: true });
  });
  const start = async (name: string): Promise<Server> => {
    const child = fork(program(version, file), [JSON.stringify({ url, log, name })], { execArgv: [] });
    children.push(child);
    const [{ port }] = (await once(child, "message")) as [{ port: number }];
    return {
      process: child,
      name,
      call: (path, method = "GET") => fetch(`http://127.0.0.1:${port}${path}`, { method }),
    };
  };
  const servers = await Promise.all(names.map(start));
  const lines = (): string[][] =>
    existsSync(log)
      ? readFileSync(log, "utf8")
          .split("\n")
          .slice(0, -1)
          .map((line) => line.split(" "))
      : [];
  return { servers, lines };
}

describe.each(VERSIONS)("Nest %i", { timeout: 240_000 }, (version) => {
  test("the programs compile with its types", () => {
    for (const [n, block] of quickStarts.entries()) tools.compile(folderOf(version), `page-${n}.ts`, block.code);
    expect(tools.complaints(folderOf(version))).toEqual([]);
  });

  test("module and decorators in one process, on memory", async () => {
    const { stdout } = await run(process.execPath, [program(version, "checks.js")], { timeout: 200_000 });
    expect(stdout.match(/^ok /gm)).toHaveLength(12);
  });

  test("the quick start runs", async () => {
    const block = quickStarts.find(({ page }) => page === "docs/nest.md");
    const path = tools.compile(folderOf(version), "quick-start.ts", block?.code ?? "");
    expect((await run(process.execPath, [path], { timeout: 100_000 })).stdout).toMatch(/^invoice 42 .* token \d+\n$/);
  });
});

test("every program of the pages runs", { timeout: 240_000 }, async () => {
  expect(quickStarts.length).toBeGreaterThan(1);
  for (const [n, block] of quickStarts.entries()) {
    const path = tools.compile(folderOf(12), `page-${n}.ts`, block.code);
    const { stdout, stderr } = await run(process.execPath, [path], { timeout: 100_000 });
    expect({ place: block.place, stderr, said: stdout !== "" }).toEqual({ place: block.place, stderr: "", said: true });
  }
});

const WHERE: [number, keyof typeof SHARED_STORES][] = [
  [12, "sqlite"],
  [12, "redis"],
  [12, "postgres"],
  [11, "sqlite"],
];

describe.each(WHERE)("applications as processes: Nest %i on %s", { timeout: 240_000 }, (version, store) => {
  test("no overlap under load, rising tokens, a killed holder, each tick once, and an end in peace", async () => {
    const { servers, lines } = await fleet(version, store, ["ann", "bob", "cy"]);
    const [ann, bob, cy] = servers as [Server, Server, Server];

    // Routes, errors and health.
    expect(await (await ann.call("/above")).json()).toBeGreaterThan(0);
    expect((await ann.call("/refused")).status).toBe(418);
    expect(await (await ann.call("/health")).json()).toMatchObject({ status: "ok", info: { locks: { status: "up" } } });

    // Load, and a process that is killed while it holds.
    const load = (): Promise<Response[]> =>
      Promise.all(Array.from({ length: 30 }, (_, n) => (n % 2 === 0 ? bob : cy).call(`/charge/${n % 3}`, "POST")));
    const before = await load();
    ann.call("/hold/0", "POST").catch(() => {});
    await until("ann holds", async () => lines().some(([what, , , who]) => what === "enter" && who === "ann"));
    const blocked = load();
    ann.process.kill("SIGKILL");
    const statuses = [...before, ...(await blocked)].map(({ status }) => status);
    expect(statuses).toEqual(statuses.map(() => 201));
    for (const id of ["0", "1", "2"]) {
      const own = lines().filter(([what, of]) => (what === "enter" || what === "exit") && of === id);
      const entered = own.filter(([what]) => what === "enter").map(([, , token]) => Number(token));
      expect(entered).toEqual([...new Set(entered)].toSorted((a, b) => a - b));
      // Each enters when the one before has left; but for the one that was killed.
      const alive = own.filter(([, , , who]) => who !== "ann");
      expect(alive.map(([what]) => what)).toEqual(alive.map((_, n) => (n % 2 === 0 ? "enter" : "exit")));
    }

    // Each tick once.
    const ticks = (): (string | undefined)[] =>
      lines()
        .filter(([what]) => what === "tick")
        .map(([, at]) => at);
    const first = ticks().length;
    await until("two more ticks", async () => ticks().length >= first + 2);
    expect(ticks()).toEqual([...new Set(ticks())]);

    // SIGTERM: the holder finishes its request, who waits leaves, and both processes end by themselves.
    const working = bob.call("/long");
    await until("bob works", async () => lines().some(([what, , who]) => what === "long" && who === "bob"));
    const waiting = bob.call("/long");
    const ended = [bob, cy].map(({ process }) => once(process, "close"));
    await until("another waits", async () =>
      lines().some(([what, of, who]) => what === "queued" && of === "long" && who === "bob"),
    );
    for (const { process } of [bob, cy]) process.kill("SIGTERM");
    expect(await (await working).text()).toBe("finished");
    expect((await waiting).status).toBe(500);
    await Promise.all(ended);
    expect(lines().filter(([what, , who]) => what === "long" && who === "bob")).toHaveLength(2);
  });
});

test("node-cron and croner: each tick once in a fleet, also after a process was killed", {
  timeout: 240_000,
}, async () => {
  const { servers, lines } = await fleet(12, "sqlite", ["ann", "bob", "cy"], "cron.js");
  for (const by of ["node-cron", "croner"]) {
    await until(`two ticks of ${by}`, () => lines().filter(([who]) => who === by).length >= 2);
  }
  servers[0]?.process.kill("SIGKILL");
  const killed = lines().length;
  for (const by of ["node-cron", "croner"]) {
    await until(
      `two more ticks of ${by}`,
      () =>
        lines()
          .slice(killed)
          .filter(([who]) => who === by).length >= 2,
    );
    const ticks = lines()
      .filter(([who]) => who === by)
      .map(([, at]) => Number(at));
    expect(ticks).toEqual([...new Set(ticks)].toSorted((a, b) => a - b));
    expect(ticks.filter((at) => at % 1000 !== 0)).toEqual([]);
  }
});
