import { existsSync, readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { startRedis } from "../servers/redis.js";
import { expectVerdict, FLEETS, run } from "./examples.js";

const FOLDER = resolve(import.meta.dirname, "../../examples");

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
  expect(names).toEqual([...FLEETS, "drain", "flash-sale", "jobs", "live-view", "naive"].toSorted());
});
