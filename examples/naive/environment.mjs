// What the cases run on: processes, Redis servers of their own, and a connection that can be cut.
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startRedis } from "../../bench/lib/redis-server.mjs";
import { startFleet } from "../lib/fleet.mjs";

export { sleep, startRedis };

/** Every lease in here: long enough for a busy machine. */
export const LEASE_MS = 1000;
/** After every lease has ended. */
export const LONG_AFTER_MS = 2 * LEASE_MS;

/** Processes of earlier cases that nothing was done to. */
const idle = [];

/** The processes of one case. */
export class Environment {
  #used = new Set();

  /** @param at the URL and the name of its lock; a process with settings is started for this case alone */
  async client({ url, name }, settings) {
    const member = (settings === undefined && idle.pop()) || (await start(settings));
    if (settings === undefined) this.#used.add(member);
    return {
      redis: (...words) => member.ask("redis", { url, words }),
      /** @param which "read", or the number of a stripe; a mutex unless said otherwise */
      tryAcquire: (options, which) =>
        member.ask("tryAcquire", { url, name, which, options: { leaseMs: LEASE_MS, ...options } }),
      twice: () => member.ask("twice", { url, name }),
      /** @param way "wrong" or "right", here and below; answers what the work threw */
      workThatThrows: (way) => member.ask("workThatThrows", { url, name, way }),
      /** So many requests at the same moment; answers how many were served. */
      serve: (way, requests) => member.ask("serve", { url, name, way, requests }),
      release: () => member.ask("release"),
      stop: () => member.stop(),
      wake: () => member.wake(),
      kill: () => this.#used.delete(member) && member.kill(),
    };
  }

  clients(...targets) {
    return Promise.all(targets.map((at) => this.client(at)));
  }

  /** Others may have its processes now. */
  clear() {
    idle.push(...this.#used);
  }
}

async function start(settings) {
  const program = join(import.meta.dirname, "member.mjs");
  const [member] = await startFleet(1, program, { quiet: true, ...settings });
  return member;
}

/** How long until somebody else gets it, or null when that is still not so long after every lease. */
export async function freeAfter(take, withinMs = 5 * LONG_AFTER_MS) {
  for (const begun = performance.now(); performance.now() - begun < withinMs; await sleep(20))
    if (await take()) return performance.now() - begun;
  return null;
}

/** A connection to a server that can be cut. */
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
