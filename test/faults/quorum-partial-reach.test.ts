import { describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineUnavailableError, StaleTokenError } from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import { memoryFence } from "../../src/fence/memory.js";
import type { Locks } from "../../src/locks.js";
import { type MovableClock, movableClock } from "../servers/clock-shim.js";
import { until } from "../servers/process.js";
import { type RedisServer, startRedis } from "../servers/redis.js";
import { at, knows, locksOn, TEST_MS, wiresTo } from "./quorum-rig.js";
import { states } from "./rig.js";

/** Longer than any of these tests takes: no lease ends by itself, and few renewals come in between. */
const LEASE_MS = 60_000;
const LEASE_S = LEASE_MS / 1000;

type Setup = {
  readonly servers: RedisServer[];
  /** Of each server. */
  readonly clocks: readonly MovableClock[];
  /** The wires of each client to the servers. */
  readonly first: Awaited<ReturnType<typeof wiresTo>>;
  readonly second: Awaited<ReturnType<typeof wiresTo>>;
};

/** Five servers, and two clients with a wire of their own to each. */
async function setUp(): Promise<Setup> {
  const clocks = Array.from({ length: 5 }, () => movableClock());
  const servers = await Promise.all(clocks.map(({ env }) => startRedis([], undefined, env)));
  onTestFinished(async () => void (await Promise.all(servers.map((server) => server.running.stop()))));
  return { servers, clocks, first: await wiresTo(servers), second: await wiresTo(servers) };
}

/** Server C, killed, and there again without what it knew. */
async function restartEmpty({ servers, clocks }: Setup, n: number): Promise<void> {
  const { running, port } = at(servers, n);
  await running.end();
  servers[n] = await startRedis([], { port, folder: running.folder }, at(clocks, n).env);
}

/** The first client's wires to D and E lose everything that is sent from now on, and the second's to A and B refuse. */
function divide({ first, second }: Setup): void {
  for (const n of [3, 4]) at(first, n).stall();
  for (const n of [0, 1]) at(second, n).cut();
}

/** Both believe; whoever is guarded by the token takes the newer one's writes, and then none of the older one's. */
async function expectTwo(older: Hold, newer: Hold): Promise<void> {
  older.throwIfLost();
  newer.throwIfLost();
  const fence = memoryFence();
  await fence.accept("file", older);
  await fence.accept("file", newer);
  await expect(fence.accept("file", older)).rejects.toBeInstanceOf(StaleTokenError);
}

describe("partial reach: client 1 reaches A, B, C of five servers, client 2 reaches C, D, E", () => {
  test("nothing happens to C: the second client does not get it", { timeout: TEST_MS }, async () => {
    const here = await setUp();
    const [one, two] = [await locksOn(here.first), await locksOn(here.second)];
    divide(here);
    const hold = await one.mutex("m").acquire({ leaseMs: LEASE_MS });
    expect(await two.mutex("m").tryAcquire().catch(unavailable)).toBeNull();
    hold.throwIfLost();
  });

  test("C's clock jumps ahead: two hold it, and the fence refuses the older", { timeout: TEST_MS }, async () => {
    const here = await setUp();
    const [one, two] = [await locksOn(here.first), await locksOn(here.second)];
    divide(here);
    const hold = await one.mutex("m").acquire({ leaseMs: LEASE_MS });
    let second: Hold | null = null;
    // A renewal in between may have given C the claim again: then it jumps once more.
    for (let seconds = 2 * LEASE_S; second === null; seconds += 2 * LEASE_S) {
      at(here.clocks, 2).moveTo(seconds);
      second = await two.mutex("m").tryAcquire({ leaseMs: LEASE_MS, waitMs: 2000 }).catch(unavailable);
    }
    await expectTwo(hold, second);
  });

  test("C restarts without its data: two hold it, and the fence refuses the older", { timeout: TEST_MS }, async () => {
    const here = await setUp();
    const [one, two] = [await locksOn(here.first), await locksOn(here.second)];
    divide(here);
    const hold = await one.mutex("m").acquire({ leaseMs: LEASE_MS });
    let second: Hold | null = null;
    while (second === null) {
      await restartEmpty(here, 2);
      second = await two.mutex("m").tryAcquire({ leaseMs: LEASE_MS, waitMs: 5000 }).catch(unavailable);
    }
    await expectTwo(hold, second);
  });

  test("the same with restartGuardMs: C may not vote, and the second client does not get it", {
    timeout: TEST_MS,
  }, async () => {
    const here = await setUp();
    // All servers have been running for an hour, by their own clocks; C will have been running for seconds.
    for (const clock of here.clocks) clock.moveTo(3600);
    const guarded = { restartGuardMs: 2 * LEASE_MS };
    const [one, two] = [await locksOn(here.first, guarded), await locksOn(here.second, guarded)];
    divide(here);
    const hold = await one.mutex("m").acquire({ leaseMs: LEASE_MS, waitMs: 20_000 });
    // The shim does not move what a server takes for its start.
    at(here.clocks, 2).moveTo(0);
    await restartEmpty(here, 2);
    const refused: unknown = await two
      .mutex("m")
      .acquire({ leaseMs: LEASE_MS, waitMs: 2000 })
      .catch((error: unknown) => error);
    expect(String((refused as Error).cause)).toMatch(/no vote yet: it started \d+ ms ago/);
    hold.throwIfLost();
  });

  test("client 1 reaches all of them for two renewals: D and E have it too, and C may forget", {
    timeout: TEST_MS,
  }, async () => {
    const here = await setUp();
    const [one, two] = [await locksOn(here.first), await locksOn(here.second)];
    divide(here);
    const hold = await one.mutex("m").acquire({ leaseMs: 15_000 });
    // What was on its way to D and E is lost with the connection: only a repair can bring it there.
    for (const n of [3, 4]) at(here.first, n).cut();
    expect(await Promise.all([3, 4].map((n) => knows(at(here.servers, n), "m")))).toEqual([false, false]);
    for (const n of [3, 4]) at(here.first, n).heal();
    const renewals = [0];
    one.on("renewed", () => renewals.push(renewals.length));
    await until(
      "D and E have it",
      async () => (await Promise.all([3, 4].map((n) => knows(at(here.servers, n), "m")))).every(Boolean),
      60_000,
    );
    const before = renewals.length;
    await until("they have confirmed it", () => renewals.length > before, 30_000);
    await restartEmpty(here, 2);
    expect(await two.mutex("m").tryAcquire({ leaseMs: LEASE_MS, waitMs: 2000 }).catch(unavailable)).toBeNull();
    hold.throwIfLost();
    await hold.release();
  });
});

describe("split votes", () => {
  test("two servers vote for each of two clients and the fifth is away: nobody wins; asked again at random, both get it in turn", {
    timeout: TEST_MS,
  }, async () => {
    const here = await setUp();
    await at(here.servers, 4).running.end();
    // Nobody is late in this vote, however long the wires are stalled.
    const patient = { memberTimeoutMs: LEASE_MS };
    const [one, two] = [await locksOn(here.first, patient), await locksOn(here.second, patient)];
    for (const n of [2, 3]) at(here.first, n).stall();
    for (const n of [0, 1]) at(here.second, n).stall();
    const order: Hold[] = [];
    let inside = 0;
    const turn = async (locks: Locks): Promise<void> => {
      const hold = await locks.mutex("m").acquire({ leaseMs: 10 * LEASE_MS });
      order.push(hold);
      inside += 1;
      expect(inside).toBe(1);
      await new Promise((resolve) => setTimeout(resolve, 5));
      hold.throwIfLost();
      inside -= 1;
      await hold.release();
    };
    const both = Promise.all([turn(one), turn(two)]);
    await until("each has two votes", async () =>
      (await Promise.all(here.servers.slice(0, 4).map((server) => knows(server, "m")))).every(Boolean),
    );
    const voted = await Promise.all(here.servers.slice(0, 4).map(holderAt));
    expect(voted[0]).toBe(voted[1]);
    expect(voted[2]).toBe(voted[3]);
    expect(voted[0]).not.toBe(voted[2]);
    expect(order, "three of five are needed").toEqual([]);
    for (const wire of [...here.first, ...here.second]) wire.heal();
    await both;
    // Who had the turn may have kept its votes and got the rest; the other's were given back, and it won with a later claim.
    expect(order.map(({ id }) => id).filter((id) => voted.includes(id)).length).toBeLessThan(2);
    expect(at(order, 1).token).toBeGreaterThan(at(order, 0).token);
  });
});

async function holderAt(server: RedisServer): Promise<string | undefined> {
  const locks = await connect(server.url);
  try {
    return (await states(locks, { name: "m" }))[0]?.holders[0]?.id;
  } finally {
    await locks.close();
  }
}

/** Too few answered: no grant either. */
function unavailable(error: unknown): null {
  if (error instanceof EngineUnavailableError) return null;
  throw error;
}
