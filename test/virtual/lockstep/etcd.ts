import assert from "node:assert/strict";
import { SystemChance } from "../../../src/core/clock.js";
import type { Engine } from "../../../src/core/engine.js";
import { RECORD_SECONDS } from "../../../src/engines/etcd/capacity.js";
import type { Calls, EtcdDriver } from "../../../src/engines/etcd/driver.js";
import { EtcdError, STATUS } from "../../../src/engines/etcd/errors.js";
import { etcdEngine } from "../../../src/engines/etcd/index.js";
import type { SeededChance } from "../../../src/testing/seeded-chance.js";
import type { PathsWorld, Stored } from "./paths.js";
import { VirtualTime, Wire } from "./time.js";

/** Longer than any test: in real time no lease ends. */
const REAL_SECONDS = 3_600;
/** What a server with etcd's defaults rounds up to. */
const LEAST_SECONDS = 2;

/**
 * Leases of a real etcd in virtual time. The server gets them for an hour; when their time is over by the clock of the test,
 * they are revoked, which is what etcd itself does then. Keep-alives and questions are answered by the same clock.
 */
class VirtualLeases {
  readonly #time: VirtualTime;
  readonly #client: EtcdDriver;
  readonly #ends = new Map<bigint, { at: number; readonly seconds: number }>();

  constructor(time: VirtualTime, client: EtcdDriver) {
    this.#time = time;
    this.#client = client;
  }

  /** The lengths in seconds of those that have not ended. */
  get live(): number[] {
    return [...this.#ends.values()].map(({ seconds }) => seconds);
  }

  /** Its length and its end; null when it is not there. */
  lifeOf(ID: bigint): { readonly seconds: number; readonly at: number } | null {
    const { seconds, at } = this.#ends.get(ID) ?? {};
    return seconds === undefined || at === undefined ? null : { seconds, at };
  }

  async grant(TTL: number) {
    const answer = await this.#client.call("leaseGrant", { TTL: REAL_SECONDS });
    const seconds = Math.max(LEAST_SECONDS, TTL);
    this.#ends.set(answer.ID, { at: this.#time.now() + seconds * 1000, seconds });
    this.#endLater(answer.ID, seconds * 1000);
    return { ...answer, TTL: seconds };
  }

  #endLater(ID: bigint, ms: number): void {
    this.#time.after(ms, () => {
      const lease = this.#ends.get(ID);
      if (lease === undefined) return;
      if (lease.at > this.#time.now()) return this.#endLater(ID, lease.at - this.#time.now());
      void this.#time.track(() => this.revoke(ID)).catch(() => {});
    });
  }

  async keepAlive(ID: bigint) {
    const answer = await this.#client.keepAlive(ID);
    const lease = this.#ends.get(ID);
    if (lease === undefined) return { ...answer, TTL: 0 };
    lease.at = this.#time.now() + lease.seconds * 1000;
    return { ...answer, TTL: lease.seconds };
  }

  async timeToLive(ID: bigint) {
    const answer = await this.#client.call("leaseTimeToLive", { ID });
    const lease = this.#ends.get(ID);
    // Whole seconds, as etcd counts them down; on a real clock a moment has always passed before it is asked.
    return { ...answer, TTL: lease === undefined ? -1 : Math.ceil((lease.at - this.#time.now()) / 1000) - 1 };
  }

  async revoke(ID: bigint): Promise<object> {
    this.#ends.delete(ID);
    return this.#client.call("leaseRevoke", { ID });
  }
}

/** A world of its own on a shared server: a prefix, a clock, leases by that clock, and a wire that can be made bad. */
export function etcdWorld(
  client: EtcdDriver,
  chance: SeededChance,
  through: (one: EtcdDriver) => EtcdDriver = (one) => one,
  make: typeof etcdEngine = etcdEngine,
): PathsWorld {
  const time = new VirtualTime();
  const leases = new VirtualLeases(time, client);
  const wire = new Wire(chance.between(1, 1_000_000), () => new EtcdError(STATUS.UNAVAILABLE, "the wire is bad"));
  const streams = new Set<() => void>();
  const prefix = `world/${new SystemChance().id()}/`;
  // Answers of other calls have the types that their names say.
  const answer = async (name: keyof Calls, request: object): Promise<unknown> => {
    if (name === "leaseGrant") return leases.grant((request as { TTL: number }).TTL);
    if (name === "leaseTimeToLive") return leases.timeToLive((request as { ID: bigint }).ID);
    if (name === "leaseRevoke") return leases.revoke((request as { ID: bigint }).ID);
    return client.call(name, request);
  };
  const all = async () => (await client.call("range", { key: prefix, range_end: `${prefix.slice(0, -1)}0` })).kvs;
  const virtual: EtcdDriver = {
    call: (name, request) =>
      time.track(() => wire.send(() => answer(name, request), name === "txn")) as Promise<Calls[typeof name][1]>,
    keepAlive: (ID) => time.track(() => wire.send(() => leases.keepAlive(ID))),
    async watch(heard, ended) {
      const stream = await client.watch(heard, ended);
      const cut = (): void => {
        streams.delete(cut);
        stream.close();
        ended(new Error("cut"));
      };
      streams.add(cut);
      return {
        send: (request) => stream.send(request),
        close() {
          streams.delete(cut);
          stream.close();
        },
      };
    },
    close: () => {},
  };
  return {
    time,
    wire,
    open: (): Promise<Engine> => make(through(virtual), { clock: time, prefix }),
    // Whole seconds; a shared lease may be a little older than the claim under it. Another client learns how long the lease
    // lasts that a claim shares, in whole seconds again, and not how long its own time is.
    leftMs: (expected, leaseMs, others) => [
      expected * 0.98 - 1_000,
      (others > 0 ? Math.max(expected, leaseMs) : expected) + 1_000,
    ],
    cutWatches: () => {
      for (const cut of [...streams]) cut();
    },
    async stored(name): Promise<Stored> {
      const kvs = await all();
      const under = (folder: string) => kvs.filter(({ key }) => key.startsWith(`${prefix}${folder}${name}`));
      const [record] = under("%/capacity/").map(({ value }) => JSON.parse(value.toString()));
      const claims = under("").map(({ value, create_revision: order, lease }) => {
        const { id, ...facts } = JSON.parse(value.toString());
        return {
          id,
          order,
          token: order,
          facts: { ...facts, seconds: leases.lifeOf(lease)?.seconds },
          endsAt: leases.lifeOf(lease)?.at,
        };
      });
      const tombstones = under("%/tombstone/").map(({ key }) => key.slice(key.lastIndexOf("/") + 1));
      return { claims, tombstones, changed: record ?? null };
    },
    stop: async () => {},
    async assertEmpty(): Promise<void> {
      const kvs = await all();
      assert.deepEqual(
        // Cells stay: they are what programs wrote. So does the version of the layout.
        kvs
          .map(({ key }) => key)
          .filter((key) => !key.startsWith(`${prefix}%/cell/`) && key !== `${prefix}%/layout-version`),
        [],
        "no key is left",
      );
      // One for a record of capacity lasts a day if the answer to its grant, or what was to be put under it, was lost.
      if (wire.failures > 0) await time.advance(RECORD_SECONDS * 1000, RECORD_SECONDS * 1000);
      assert.deepEqual(leases.live, [], "no lease is left");
    },
  };
}
