// What the cases are played on: processes, Redis servers of their own, and a wire that can be cut.
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startRedis } from "../../bench/lib/redis-server.mjs";
import { startFleet } from "../lib/fleet.mjs";

export { sleep, startRedis };

/** Every lease in here. */
export const LEASE_MS = 300;
/** Long after every lease has ended. */
export const LONG_AFTER_MS = 3 * LEASE_MS;

/** Processes of earlier cases that nothing was done to. */
const idle = [];
let used = [];

/** The case is over. */
export function clear() {
  idle.push(...used);
  used = [];
}

/** A process, seen from a case: bare commands for the naive lock, and Holdfast for the right one. */
export async function actor(url, name, settings = {}) {
  const program = join(import.meta.dirname, "member.mjs");
  const plain = Object.keys(settings).length === 0;
  const member = (plain && idle.pop()) || (await startFleet(1, program, { quiet: true, ...settings }))[0];
  if (plain) used.push(member);
  const to = (url) => ({
    redis: (...words) => member.ask("redis", { url, words }),
    tryAcquire: (options) => member.ask("tryAcquire", { url, name, options: { leaseMs: LEASE_MS, ...options } }),
    twice: () => member.ask("twice", { url, name }),
  });
  return {
    ...to(url),
    to,
    release: () => member.ask("release"),
    stop: () => member.stop(),
    wake: () => member.wake(),
    kill() {
      used = used.filter((one) => one !== member);
      return member.kill();
    },
  };
}

/** How long until somebody else gets it, or null when that is still not so long after every lease. */
export async function freeAfter(take, withinMs = 3 * LONG_AFTER_MS) {
  for (const begun = performance.now(); performance.now() - begun < withinMs; await sleep(20))
    if (await take()) return performance.now() - begun;
  return null;
}

/** A wire to a server, and its scissors. */
export async function wireTo(port) {
  const ends = new Set();
  let isCut = false;
  const server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      ends.add(one.on("error", () => other.destroy()).on("close", () => other.destroy()));
      one.pipe(other);
    }
    if (isCut) near.destroy();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = () => {
    isCut = true;
    for (const end of ends) end.destroy();
    server.close();
  };
  return { port: server.address().port, url: `redis://127.0.0.1:${server.address().port}`, cut };
}
