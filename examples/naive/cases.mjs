// Each wrong lock as the commands it sends, up to the point where it fails; and the same scenario with Holdfast. Each answers
// what was seen, and whether that is how a lock should be. `problem` is its number in docs/eight-problems.md.
import { freeAfter, LEASE_MS, LONG_AFTER_MS, sleep, startRedis, wireTo } from "./environment.mjs";

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const free = (ms) => ({ fine: ms !== null, seen: ms === null ? "never free again" : `free after ${seconds(ms)}` });
const inside = (count, more = "") => ({ fine: count === 1, seen: `${count} inside${more}` });
const atATime = (count) => ({ fine: count === 2, seen: `${count} at a time` });
const taken = (answer) => answer === "OK" || answer === 1;

/** Whether a key that a dead holder left will ever go away: asked with the naive lock's own command, and the server itself. */
async function freeForNext(next, key) {
  const ms = await freeAfter(async () => taken(await next.redis("SETNX", key, "bob")), LONG_AFTER_MS);
  if (ms === null && (await next.redis("PTTL", key)) !== -1) throw new Error(`${key} was slow to expire`);
  return ms;
}

/** Holdfast's holder is gone, however that came about: when does the next one get in? */
const freeForNextHold = (next) => freeAfter(() => next.tryAcquire());

/** Ann outlasts her lease and bob takes over; then ann gives "her" lock back in some way: who else is in now? */
async function lateRelease(environment, at, giveBack) {
  const [ann, bob, cy] = await environment.clients(at, at, at);
  await ann.redis("SET", at.name, "ann", "NX", "PX", LEASE_MS);
  const goOn = await giveBack(ann);
  await freeAfter(async () => taken(await bob.redis("SET", at.name, "bob", "NX", "PX", 20 * LEASE_MS)));
  await goOn();
  return inside(taken(await cy.redis("SET", at.name, "cy", "NX", "PX", LEASE_MS)) ? 2 : 1);
}

async function lateHoldfastRelease(environment, at, options, pause) {
  const [ann, bob, cy] = await environment.clients(at, at, at);
  await ann.tryAcquire(options);
  if (pause) ann.stop();
  await freeAfter(() => bob.tryAcquire({ leaseMs: 20 * LEASE_MS }));
  const told = ann.release();
  if (pause) ann.wake();
  const count = (await told, await cy.tryAcquire()) ? 2 : 1;
  return inside(count, (await told) === "HOLDFAST_LOCK_LOST" ? ", the late one is told" : ", the late one is not told");
}

/** The lock of the old SETNX page: its value is the time when it ends, by the clock of whoever took it. */
async function takeByGetset(client, key, leaseMs, now = Date.now()) {
  if ((await client.redis("SETNX", key, now + leaseMs)) === 1) return true;
  const seen = await client.redis("GET", key);
  if (seen === null || Number(seen) > now) return false;
  return (await client.redis("GETSET", key, now + leaseMs)) === seen;
}

/** Whoever works under the lock fails, and hears of it. */
async function thrown(answer) {
  if ((await answer) !== "the work failed") throw new Error("the work did not throw");
}

async function crowd(environment, at, way) {
  const clients = await environment.clients(at, at);
  const served = await Promise.all(clients.map((client) => client.serve(way, 20)));
  const count = served.reduce((sum, one) => sum + one, 0);
  return { fine: count === 40, seen: `${count} of 40 served` };
}

/** Two who would not disturb each other take the one lock that there is. */
async function together(environment, at) {
  const [ann, bob] = await environment.clients(at, at);
  const take = async (client) => taken(await client.redis("SET", at.name, "x", "NX", "PX", 20 * LEASE_MS));
  const first = await take(ann);
  return atATime(first && (await take(bob)) ? 2 : 1);
}

/** A server that keeps every command, crashes, and comes back with what it kept. */
async function crashing(environment, name, begin) {
  const durable = ["--appendonly", "yes", "--appendfsync", "always"];
  const server = await startRedis(durable);
  const [ann, bob] = await environment.clients({ name, url: server.url }, { name, url: server.url });
  await begin(ann);
  await server.crash();
  await startRedis(durable, server);
  return { ann, bob };
}

/** A primary and its replica, which has heard nothing for a moment when it has to take over. */
async function withReplica(environment) {
  const primary = await startRedis(["--repl-diskless-sync-delay", "0"]);
  const wire = await wireTo(primary.port);
  const replica = await startRedis(["--replicaof", "127.0.0.1", String(wire.port)]);
  const boss = await environment.client({ url: replica.url });
  await freeAfter(async () => /master_link_status:up/.test(await boss.redis("INFO", "replication")));
  const promote = async () => {
    await primary.crash();
    await boss.redis("REPLICAOF", "NO", "ONE");
  };
  return { primary, replica, wire, promote };
}

export const CASES = [
  {
    problem: 1,
    lock: "SETNX, then EXPIRE",
    scenario: "the client dies in between",
    async wrong(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await ann.redis("SETNX", at.name, "ann");
      await ann.kill();
      return free(await freeForNext(bob, at.name));
    },
    async right(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await ann.tryAcquire();
      await ann.kill();
      return free(await freeForNextHold(bob));
    },
  },
  {
    problem: 1,
    lock: "SETNX, then EXPIRE",
    scenario: "the network fails in between",
    async wrong(environment, at) {
      const wire = await wireTo(at.port);
      const [ann, bob] = await environment.clients({ ...at, url: wire.url }, at);
      await ann.redis("SETNX", at.name, "ann");
      wire.cut();
      await ann.redis("PEXPIRE", at.name, LEASE_MS).catch(() => {});
      return free(await freeForNext(bob, at.name));
    },
    async right(environment, at) {
      const wire = await wireTo(at.port);
      const [ann, bob] = await environment.clients({ ...at, url: wire.url }, at);
      await ann.tryAcquire();
      wire.cut();
      return free(await freeForNextHold(bob));
    },
  },
  {
    problem: 1,
    lock: "SETNX, then EXPIRE",
    scenario: "the server crashes in between",
    async wrong(environment, { name }) {
      const { ann, bob } = await crashing(environment, name, (ann) => ann.redis("SETNX", name, "ann"));
      await ann.redis("PEXPIRE", name, LEASE_MS).catch(() => {});
      return free(await freeForNext(bob, name));
    },
    async right(environment, { name }) {
      const { bob } = await crashing(environment, name, (ann) => ann.tryAcquire({ renew: false }));
      return free(await freeForNextHold(bob));
    },
  },
  {
    problem: 1,
    lock: "the expiry as the value, GETSET",
    scenario: "one client's clock is a minute ahead",
    async wrong(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await takeByGetset(ann, at.name, 20_000);
      return inside((await takeByGetset(bob, at.name, 20_000, Date.now() + 60_000)) ? 2 : 1);
    },
    async right(environment, at) {
      const [ann, bob] = await Promise.all([environment.client(at), environment.client(at, { clockAheadMs: 60_000 })]);
      await ann.tryAcquire({ leaseMs: 20_000 });
      return inside((await bob.tryAcquire()) ? 2 : 1);
    },
  },
  {
    problem: 1,
    lock: "the expiry as the value, GETSET",
    scenario: "a loser's GETSET comes after the winner's",
    async wrong(environment, at) {
      const [bob, cy, dan] = await environment.clients(at, at, at);
      const ended = String(Date.now() - 1);
      await bob.redis("SET", at.name, ended); // left by somebody whose time is up, as bob and cy both see
      await bob.redis("GETSET", at.name, Date.now() + LEASE_MS); // it answers what he saw: bob has it, for one lease
      const lost = await cy.redis("GETSET", at.name, Date.now() + 20 * LEASE_MS); // it answers bob's: cy has not
      if (lost === ended) throw new Error("cy did not lose");
      await bob.kill();
      const ms = await freeAfter(() => takeByGetset(dan, at.name, LEASE_MS), LONG_AFTER_MS);
      return { fine: ms !== null, seen: ms === null ? "taken past its lease" : `free after ${seconds(ms)}` };
    },
    async right(environment, at) {
      const [bob, cy, dan] = await environment.clients(at, at, at);
      await bob.tryAcquire();
      if (await cy.tryAcquire({ leaseMs: 20 * LEASE_MS })) throw new Error("cy did not lose");
      await bob.kill();
      return free(await freeForNextHold(dan));
    },
  },
  {
    problem: 1,
    lock: "the expiry as the value, GETSET",
    scenario: "a late holder gives back what has no owner",
    async wrong(environment, at) {
      const [ann, bob, cy] = await environment.clients(at, at, at);
      await takeByGetset(ann, at.name, LEASE_MS);
      await freeAfter(() => takeByGetset(bob, at.name, 20 * LEASE_MS));
      await ann.redis("DEL", at.name); // the value is a time: nothing in it says whose
      return inside((await takeByGetset(cy, at.name, LEASE_MS)) ? 2 : 1);
    },
    right: (environment, at) => lateHoldfastRelease(environment, at, { renew: false }, false),
  },
  {
    problem: 2,
    lock: "no expiry at all",
    scenario: "the holder dies",
    async wrong(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await ann.redis("SET", at.name, "ann", "NX");
      await ann.kill();
      return free(await freeForNext(bob, at.name));
    },
    async right(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await ann.tryAcquire();
      await ann.kill();
      return free(await freeForNextHold(bob));
    },
  },
  {
    problem: 2,
    lock: "given back after the work",
    scenario: "the work throws, and its process lives on",
    async wrong(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await thrown(ann.workThatThrows("wrong"));
      return free(await freeForNext(bob, at.name));
    },
    async right(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await thrown(ann.workThatThrows("right"));
      return free(await freeForNextHold(bob));
    },
  },
  {
    problem: 3,
    lock: "given back with DEL",
    scenario: "the work outlasted the lease",
    wrong: (environment, at) => lateRelease(environment, at, async (ann) => () => ann.redis("DEL", at.name)),
    right: (environment, at) => lateHoldfastRelease(environment, at, { renew: false }, false),
  },
  {
    problem: 3,
    lock: "GET, compare, then DEL",
    scenario: "the holder pauses in between",
    wrong: (environment, at) =>
      lateRelease(environment, at, async (ann) => {
        const owner = await ann.redis("GET", at.name);
        return () => owner === "ann" && ann.redis("DEL", at.name);
      }),
    right: (environment, at) => lateHoldfastRelease(environment, at, {}, true),
  },
  {
    problem: 4,
    lock: "tried once, no wait",
    scenario: "40 requests come at once",
    wrong: (environment, at) => crowd(environment, at, "wrong"),
    right: (environment, at) => crowd(environment, at, "right"),
  },
  {
    problem: 5,
    lock: "no re-entry",
    scenario: "a function calls itself",
    async wrong(environment, at) {
      const ann = await environment.client(at);
      const take = async () => taken(await ann.redis("SET", at.name, "ann", "NX", "PX", 20 * LEASE_MS));
      await take();
      const again = (await freeAfter(take, LONG_AFTER_MS)) !== null;
      return { fine: again, seen: again ? "goes on" : "waits for itself" };
    },
    async right(environment, at) {
      const again = await (await environment.client(at)).twice().catch(() => false);
      return { fine: again, seen: again ? "goes on" : "waits for itself" };
    },
  },
  {
    problem: 6,
    lock: "one lock for reading and writing",
    scenario: "two want to read",
    wrong: (environment, at) => together(environment, at),
    async right(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      const first = await ann.tryAcquire({}, "read");
      return atATime(first && (await bob.tryAcquire({}, "read")) ? 2 : 1);
    },
  },
  {
    problem: 6,
    lock: "one lock for the whole stock",
    scenario: "two want different parts of it",
    wrong: (environment, at) => together(environment, at),
    async right(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      const first = await ann.tryAcquire({}, 0);
      return atATime(first && (await bob.tryAcquire({}, 1)) ? 2 : 1);
    },
  },
  {
    problem: 7,
    lock: "no renewal",
    scenario: "the work outlasts the lease",
    async wrong(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await ann.redis("SET", at.name, "ann", "NX", "PX", LEASE_MS);
      await sleep(LONG_AFTER_MS); // ann works
      return inside(taken(await bob.redis("SET", at.name, "bob", "NX", "PX", LEASE_MS)) ? 2 : 1);
    },
    async right(environment, at) {
      const [ann, bob] = await environment.clients(at, at);
      await ann.tryAcquire();
      await sleep(LONG_AFTER_MS);
      const [second, told] = [await bob.tryAcquire(), await ann.release()];
      return inside(second || told !== "released" ? 2 : 1);
    },
  },
  {
    problem: 8,
    lock: "one server and its replica",
    scenario: "the replica is promoted without the lock",
    async wrong(environment, { name }) {
      const { primary, replica, wire, promote } = await withReplica(environment);
      const [ann, bob] = await environment.clients({ name, url: primary.url }, { name, url: replica.url });
      wire.cut();
      await ann.redis("SET", name, "ann", "NX", "PX", 20 * LEASE_MS);
      await promote();
      return inside(taken(await bob.redis("SET", name, "bob", "NX", "PX", 20 * LEASE_MS)) ? 2 : 1);
    },
    async right(environment, { name }) {
      const { primary, replica, wire, promote } = await withReplica(environment);
      const others = await Promise.all([startRedis(), startRedis()]);
      const quorum = (one) => `redlock://${[one, ...others].map(({ port }) => `127.0.0.1:${port}`).join(",")}`;
      const ann = await environment.client({ name, url: quorum(primary) });
      wire.cut();
      await ann.tryAcquire({ leaseMs: 20 * LEASE_MS });
      await promote();
      const bob = await environment.client({ name, url: quorum(replica) });
      return inside((await bob.tryAcquire()) ? 2 : 1, ", by a quorum of three");
    },
  },
];
