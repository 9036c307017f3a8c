import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { startPostgres } from "../servers/postgres.js";
import { startRedis } from "../servers/redis.js";
import { startZooKeeper } from "../servers/zookeeper.js";

const ROOT = resolve(import.meta.dirname, "../..");
const FOLDER = resolve(ROOT, "examples");

type Ended = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

/** As `npm run example -- …` does it. */
function run(...words: string[]): Promise<Ended> {
  const child = spawn(process.execPath, [resolve(FOLDER, "run.mjs"), ...words], { cwd: ROOT, timeout: 240_000 });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text: Buffer) => (stdout += text.toString()));
  child.stderr.on("data", (text: Buffer) => (stderr += text.toString()));
  return new Promise((fulfil) => child.on("close", (code) => fulfil({ code, stdout, stderr })));
}

/** What must hold held, or did not; nothing else went wrong, and there is nothing that only a terminal understands. */
function expectVerdict({ code, stdout, stderr }: Ended, holds: boolean): void {
  expect({ code, stderr, stdout }).toMatchObject({ code: holds ? 0 : 1, stderr: "" });
  expect(stdout.trimEnd().split("\n").at(-1)).toBe(holds ? "as it must be" : "broken");
  expect(stdout).not.toContain("\u001B");
}

const FLEETS = [
  "leader",
  "cron-once",
  "device",
  "two-services",
  "user-session",
  "recursive-menu",
  "mkdir-once",
  "paused-writer",
];

describe("the examples, on a file", { timeout: 240_000 }, () => {
  test.each(FLEETS)("%s: with the lock it holds although a process is killed", async (name) => {
    const ended = await run(name);
    expectVerdict(ended, true);
    expect(ended.stdout).toContain("killed (SIGKILL)");
  });

  test.each(FLEETS)("%s: without the lock it breaks", async (name) => {
    expectVerdict(await run(name, "--no-lock"), false);
  });

  test("paused-writer: with the lock alone it breaks too", async () => {
    const ended = await run("paused-writer", "--no-fence");
    expectVerdict(ended, false);
    expect(ended.stdout).toContain('the document says "written by ann"');
  });

  test("drain: a worker that is told to end finishes its part and hands on; one that is killed does not", async () => {
    const drained = await run("drain");
    expectVerdict(drained, true);
    expect(drained.stdout.match(/told to end \(SIGTERM\), and ended with code 0/g)).toHaveLength(2);
    expectVerdict(await run("drain", "--kill"), false);
    expectVerdict(await run("drain", "--no-lock"), false);
  });

  test("flash-sale: in segments it sells exactly what there is", async () => {
    const { code, stdout, stderr } = await run(..."flash-sale --items 200 --buyers 1000 --segments 20".split(" "));
    expect({ code, stderr, stdout }).toMatchObject({ code: 0, stderr: "" });
    const rows = [...stdout.matchAll(/^(one lock|20 segments) +200 +0 +0 /gm)];
    expect(rows.map(([, name]) => name)).toEqual(["one lock", "20 segments"]);
  });
});

describe("paused-writer: the stale write is refused", { timeout: 180_000 }, () => {
  const redis = async () => {
    const { port, url, running } = await startRedis();
    return { port, url, stop: () => running.stop() };
  };
  const stores: Record<string, () => Promise<{ url: string; stop: () => Promise<unknown> }>> = {
    Redis: redis,
    async PostgreSQL() {
      const { url, running } = await startPostgres();
      return { url, stop: () => running.stop() };
    },
    async ZooKeeper() {
      const { port, running } = await startZooKeeper();
      return { url: `zookeeper://127.0.0.1:${port}`, stop: () => running.stop() };
    },
    async "a Redis quorum"() {
      const servers = await Promise.all([redis(), redis(), redis()]);
      const url = `redlock://${servers.map(({ port }) => `127.0.0.1:${port}`).join(",")}`;
      return { url, stop: () => Promise.all(servers.map(({ stop }) => stop())) };
    },
  };

  test.concurrent.each(Object.keys(stores))("on %s, and accepted without the fence", async (name) => {
    const { url, stop } = (await stores[name]?.()) ?? { url: "", stop: async () => {} };
    try {
      const refused = await run("paused-writer", "--url", url);
      expectVerdict(refused, true);
      expect(refused.stdout).toMatch(/ann +was refused: .*\n(?:.*\n)*.*the document says "written by cy"/);
      const accepted = await run("paused-writer", "--no-fence", "--url", url);
      expectVerdict(accepted, false);
      expect(accepted.stdout).toMatch(/ann +wrote\n(?:.*\n)*.*the document says "written by ann"/);
    } finally {
      await stop();
    }
  });
});

test("naive: each wrong lock fails on a real Redis, and the right one beside it does not", {
  timeout: 240_000,
}, async () => {
  await (await startRedis()).running.stop(); // so that Redis is installed
  const { code, stdout, stderr } = await run("naive");
  expect({ code, stderr, stdout }).toMatchObject({ code: 0, stderr: "" });
  const rows = stdout.trimEnd().split("\n").slice(1);
  expect([...new Set(rows.map((row) => row[0]))].join("")).toBe("12345678");
  expect(rows).toHaveLength(16);
  for (const row of rows)
    expect(row).toMatch(
      /(?:never free again|taken past its lease|2 inside|[12] of 40 served|waits for itself|1 at a time) {2,}(?:free after|1 inside|40 of 40 served|goes on|2 at a time)/,
    );
});

describe("what an example cannot do is said at once, with exit code 2", () => {
  test.each([
    [["no-such"], /there is no example "no-such"[^]*leader/],
    [[], /which example\?/],
    [["leader", "--urk"], /--urk[^]*usage: npm run example -- leader/],
    [["leader", "--url", "gopher://x"], /it starts with "gopher:"/],
    [["leader", "--url", "memory:"], /one process/],
    [["leader", "--url", "redis://127.0.0.1:1"], /ECONNREFUSED/],
    [["two-services", "--url", "sqlite:x.db"], /given 1 time\(s\): 2 wanted/],
    [["flash-sale", "--variant", "hope"], /--variant is one of: no lock, mutex/],
    [["flash-sale", "--segments", "0"], /--segments must be a whole number above 0/],
    [["naive", "--url", "redis://x"], /usage: npm run example -- naive/],
  ])("%j", async (words, message) => {
    const { code, stderr } = await run(...words);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain("    at ");
  });

  test("--help is no error", async () => {
    expect(await run("device", "--help")).toMatchObject({ code: 0, stderr: "" });
  });
});

test("each example has a README that says how to run it, and the list has them all", () => {
  const names = readdirSync(FOLDER).filter((name) => existsSync(resolve(FOLDER, name, "run.mjs")));
  const list = readFileSync(resolve(FOLDER, "README.md"), "utf8");
  for (const name of names) {
    expect(list).toContain(`[${name}](${name}/README.md)`);
    expect(readFileSync(resolve(FOLDER, name, "README.md"), "utf8")).toContain(`npm run example -- ${name}`);
  }
  expect(names).toEqual([...FLEETS, "drain", "flash-sale", "live-view", "naive"].toSorted());
});
