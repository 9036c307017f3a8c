import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { claimOf } from "../faults/rig.js";
import { startMemcached } from "../servers/memcached.js";

const FOLDER = resolve(import.meta.dirname, "../../examples/engine-memcached");

type Example = { readonly memcachedEngine: (server: { host: string; port: number }) => Promise<Engine> };

let server: Awaited<ReturnType<typeof startMemcached>>;
beforeAll(async () => void (server = await startMemcached()), 60_000);
afterAll(() => server?.running.stop());

async function engineAt(port: number): Promise<Engine> {
  const { memcachedEngine } = (await import(pathToFileURL(join(FOLDER, "engine.mjs")).href)) as Example;
  return memcachedEngine({ host: "127.0.0.1", port });
}

test("an engine by somebody else is written against the published contract alone", () => {
  for (const file of readdirSync(FOLDER).filter((name) => name.endsWith(".mjs"))) {
    const imports = [...readFileSync(join(FOLDER, file), "utf8").matchAll(/from "([^"]+)"/g)].map(([, from]) => from);
    const allowed = /^(node:|\.\/|holdfast\/(engine|testing)$)/;
    expect(imports.filter((from = "") => !allowed.test(from))).toEqual([]);
  }
});

test("memcached passes the published kit", { timeout: 240_000 }, async () => {
  const env = { ...process.env, MEMCACHED: `127.0.0.1:${server.port}`, NODE_OPTIONS: "" };
  const words = ["--test", "--test-reporter=tap", "kit.test.mjs"];
  const output = await new Promise<string>((tell) => {
    execFile(process.execPath, words, { cwd: FOLDER, env, maxBuffer: 2 ** 26 }, (_, stdout) => tell(stdout));
  });
  const failed = /^ *not ok .*(?:\n(?! *(?:not )?ok ).*)*/gm;
  expect(output.match(failed)?.join("\n") ?? "none").toBe("none");
  expect(Number(/^# pass (\d+)/m.exec(output)?.[1])).toBeGreaterThan(80);
  expect(output).toMatch(/^# fail 0$/m);
});

test("it says that a server which evicts forgets, and one with -M does not", { timeout: 60_000 }, async () => {
  const keeps = await startMemcached(["-M"]);
  try {
    const [forgetful, strict] = [await engineAt(server.port), await engineAt(keeps.port)];
    expect(forgetful.guarantees).toMatchObject({ exclusion: "until-failover", order: "none", wake: "poll" });
    expect(strict.guarantees.exclusion).toBe("single-server");
    for (const engine of [forgetful, strict]) await engine[Symbol.asyncDispose]();
  } finally {
    await keeps.running.stop();
  }
});

test("a token is higher than those of a server that forgot everything", { timeout: 60_000 }, async () => {
  const one = await startMemcached();
  const engine = await engineAt(one.port);
  const before = await engine.claim(claimOf("forgotten"));
  await one.running.stop();
  const other = await startMemcached([], one.port);
  try {
    const after = await engine.claim(claimOf("forgotten"));
    expect(after.kind).toBe("granted");
    expect((after as { token: number }).token).toBeGreaterThan((before as { token: number }).token);
  } finally {
    await engine[Symbol.asyncDispose]();
    await other.running.stop();
  }
});
