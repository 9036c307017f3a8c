import { expect, test } from "vitest";
import { SystemChance } from "../../src/core/clock.js";
import { until } from "../servers/process.js";
import { locksOn, ownServer, proxyTo, urlOf, waiters } from "./zookeeper-rig.js";

/** A connection that goes silent without an end, as behind a firewall that forgets it, while another server can be reached. */

/** The first of the hosts is tried first. */
function inOrder(): SystemChance {
  let drawn = 1;
  return Object.assign(new SystemChance(), { fraction: () => (drawn = Math.max(0, drawn - 0.001)) });
}

test("a silent connection is replaced while the session lives: holds are kept, who waits goes on, and the user is told", {
  timeout: 60_000,
}, async () => {
  const server = await ownServer({ tickMs: 1000 });
  const [first, second] = [await proxyTo(server.port), await proxyTo(server.port)];
  const settings = { sessionTimeoutMs: 12_000, callTimeoutMs: 1000 };
  const far = await locksOn(urlOf(first.port, second.port), { ...settings, chance: inOrder() });
  const near = await locksOn(urlOf(server.port), settings);
  const told: string[] = [];
  far.on("warning", ({ message }) => told.push(message));
  far.on("lost", ({ name }) => told.push(`lost ${name}`));
  const hold = await far.mutex("kept").acquire();
  const theirs = await near.mutex("awaited").acquire();
  const waiting = far.mutex("awaited").acquire();
  await until("it waits", async () => (await waiters(near, "awaited")) === 1);
  expect([first.connections, second.connections]).toEqual([1, 0]);
  // It knows the server well enough by now that its deadline counts on what was confirmed.
  await until("a renewal", () => hold.remainingMs > 0);
  first.stall();
  await until("it moved on", () => second.connections === 1);
  await theirs.release();
  await (await waiting).release();
  hold.throwIfLost();
  await hold.release();
  expect(told).toHaveLength(1);
  expect(told[0]).toMatch(new RegExp(`127.0.0.1:${first.port}: the server .* (silent|unanswered) for \\d+ ms`));
});
