import { expect, test } from "vitest";
import { until } from "../../servers/process.js";
import { World } from "./rig.js";

/** Its address, when it has printed it. */
async function addressOf(ui: { out: string }): Promise<string> {
  await until("the address is printed", () => /^http:\/\/\S+\/\n/.test(ui.out));
  return ui.out.trim();
}

test("prints its address on this machine, shows the names in use, and ends by Ctrl-C", async () => {
  const world = new World();
  const ui = world.start(["ui", "--every", "0.1"]);
  const url = await addressOf(ui);
  expect(new URL(url).hostname).toBe("127.0.0.1");
  const holder = world.start(["run", "backup", "--", "sleep", "60"]);
  await until("it is held", async () => (await (await fetch(url)).text()).includes("<bdi>backup</bdi>"));
  // The page's own modules are in what is packed.
  const scripts = [...(await (await fetch(url)).text()).matchAll(/href="([\w-]+\.js)"/g)].map(([, file = ""]) => file);
  expect(scripts.length).toBeGreaterThan(5);
  for (const file of ["main.js", ...scripts]) expect((await fetch(new URL(file, url))).status).toBe(200);
  // An open stream does not keep it.
  const stream = await fetch(new URL("events", url));
  await stream.body?.getReader().read();
  const post = { method: "POST", headers: { origin: new URL(url).origin, "x-holdfast-live-view": "1" } };
  expect((await fetch(new URL("release?name=backup&token=1", url), post)).status).toBe(403);
  ui.process.kill("SIGINT");
  expect((await ui.ended).code).toBe(0);
  holder.process.kill("SIGTERM");
  await holder.ended;
});

test("with --release the page may take a lock away, and it is told on stderr", async () => {
  const world = new World();
  const ui = world.start(["ui", "--release"]);
  const url = await addressOf(ui);
  const hold = await (await world.locks()).mutex("stuck").acquire();
  const headers = { origin: new URL(url).origin, "x-holdfast-live-view": "1" };
  const answer = await fetch(new URL(`release?name=stuck&token=${hold.token}`, url), { method: "POST", headers });
  expect(answer.status).toBe(200);
  await until("it is told", () => ui.err.includes('"stuck" was taken from'));
  ui.process.kill("SIGTERM");
  expect((await ui.ended).code).toBe(0);
});

test("a port that is taken, and words that are none, are refused", async () => {
  const world = new World();
  const ui = world.start(["ui"]);
  const { port } = new URL(await addressOf(ui));
  const second = await world.holdfast("ui", "--port", port);
  expect([second.code, second.err]).toEqual([69, expect.stringContaining(`port ${port}`)]);
  expect((await world.holdfast("ui", "--port", "70000")).code).toBe(64);
  expect((await world.holdfast("ui", "a", "b")).code).toBe(64);
  ui.process.kill("SIGTERM");
  await ui.ended;
});
