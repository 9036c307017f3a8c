// Beyond the common files of an engine: claims live by leases, which many of them share.

import type { Clock } from "../../core/clock.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import { behindOthers } from "../../core/turn.js";
import type { EtcdDriver } from "./driver.js";
import { EtcdError, isLeaseGone, STATUS } from "./errors.js";
import type { Proof } from "./store.js";

/** A lease in etcd: many claims share it, or it is there for one alone. */
export class Lease {
  readonly id: bigint;
  readonly ttlMs: number;
  readonly alone: boolean;
  /** It lives until then at least, whatever happens to the leader. */
  provenUntil: number;
  gone = false;
  /** The last keep-alive that was answered, and one under way. */
  beat: Proof | null = null;
  beating: { readonly sentAt: number; readonly done: Promise<void> } | null = null;

  constructor(id: bigint, ttlMs: number, sentAt: number, alone = false) {
    this.id = id;
    this.ttlMs = ttlMs;
    this.alone = alone;
    // Granting a lease is a write of the quorum: it proves itself.
    this.provenUntil = sentAt + ttlMs;
  }

  /**
   * A leader that stalled goes on answering keep-alives while another one counts the lease down (etcd issue 15247), so a
   * keep-alive alone proves nothing. Together with an answer of the quorum in the same term it does, from the earlier of
   * the two on: either that leader still led when it renewed the lease, or its successor came after the quorum had
   * answered, and a new leader gives every lease its full time again.
   */
  prove({ sentAt, term }: Proof): void {
    if (this.beat === null || this.beat.term !== term) return;
    this.provenUntil = Math.max(this.provenUntil, Math.min(this.beat.sentAt, sentAt) + this.ttlMs);
  }
}

/**
 * One lease for each length that this client asks for, kept alive by the heartbeats of the claims under it; and one for
 * each hold of fixed length, which must end in time although others are renewed, and although its process is dead.
 */
export class Leases {
  readonly #client: EtcdDriver;
  readonly #clock: Clock;
  readonly #bySeconds = new Map<number, Promise<Lease>>();
  readonly #revoking = new Set<Promise<unknown>>();
  #tombstones: { readonly lease: Promise<Lease>; readonly until: number } | null = null;

  constructor(client: EtcdDriver, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  /** One that lives, and lasts at least this long after a heartbeat. */
  async of(ms: number): Promise<Lease> {
    const seconds = Math.ceil(ms / 1000);
    for (;;) {
      const current = this.#bySeconds.get(seconds);
      // Whoever asked for that one was told; here a new one is asked for.
      const lease = await current?.catch(() => undefined);
      if (lease !== undefined && !lease.gone && lease.provenUntil > this.#clock.now()) return lease;
      // Somebody else may have asked for a new one meanwhile.
      if (this.#bySeconds.get(seconds) !== current) continue;
      const granted = this.grant(seconds);
      this.#bySeconds.set(seconds, granted);
      return granted;
    }
  }

  /** One for a single claim. It is never kept alive while its claim holds. */
  alone(ms: number): Promise<Lease> {
    return this.grant(Math.ceil(ms / 1000), true);
  }

  /** Writes a tombstone under a lease for them; under a new one if the server does not know that any more. */
  async bury<T>(write: (lease: bigint) => Promise<T>): Promise<T> {
    try {
      return await write((await this.#forTombstones()).id);
    } catch (cause) {
      if (!isLeaseGone(cause)) throw cause;
      this.#tombstones = null;
      return write((await this.#forTombstones()).id);
    }
  }

  /** Tombstones are to last a minute at least and two at most: a lease that is never renewed, and left after half of its time. */
  #forTombstones(): Promise<Lease> {
    const now = this.#clock.now();
    if (this.#tombstones === null || now >= this.#tombstones.until) {
      const lease = this.grant((2 * TOMBSTONE_MS) / 1000);
      this.#tombstones = { lease, until: now + TOMBSTONE_MS };
      lease.catch(() => (this.#tombstones = null));
    }
    return this.#tombstones.lease;
  }

  async grant(seconds: number, alone = false): Promise<Lease> {
    const sentAt = this.#clock.now();
    const { ID, TTL } = await this.#client.call("leaseGrant", { TTL: seconds });
    // What is put under lease 0 lasts for ever.
    if (ID === 0n || TTL <= 0) throw new EtcdError(STATUS.INTERNAL, "etcd granted a lease that is none");
    return new Lease(ID, TTL * 1000, sentAt, alone);
  }

  /** No key is under it any more. If this fails it ends by itself. */
  end(lease: bigint): void {
    const revoking = this.#client.call("leaseRevoke", { ID: lease }).catch(() => {});
    this.#revoking.add(revoking);
    void revoking.then(() => this.#revoking.delete(revoking));
  }

  /** The server does not know it any more. */
  lost(lease: Lease): void {
    lease.gone = true;
  }

  /** A keep-alive sent not before `since`; never rejects, as what it proves is judged afterwards. */
  async beat(lease: Lease, since: number): Promise<void> {
    if (lease.gone) return;
    if (lease.beating === null || lease.beating.sentAt < since) {
      const beating = { sentAt: Infinity, done: Promise.resolve() };
      beating.done = this.#send(lease, beating);
      lease.beating = beating;
      void beating.done.then(() => {
        if (lease.beating === beating) lease.beating = null;
      });
    }
    await lease.beating.done;
  }

  /** Behind all that is asked in this turn of the event loop, so that one is enough for it. */
  async #send(lease: Lease, beating: { sentAt: number }): Promise<void> {
    await new Promise<void>((resolve) => behindOthers(resolve));
    const sentAt = this.#clock.now();
    beating.sentAt = sentAt;
    try {
      const { TTL, header } = await this.#client.keepAlive(lease.id);
      if (TTL <= 0) this.lost(lease);
      else if (lease.beat === null || lease.beat.sentAt < sentAt) lease.beat = { sentAt, term: header.raft_term };
    } catch {
      // Not known: nothing is proved.
    }
  }

  /** Those under which there is no key end now; the others by themselves, because a hold may have been handed over. */
  async close(inUse: ReadonlySet<Lease>): Promise<void> {
    const all = await Promise.allSettled(this.#bySeconds.values());
    const idle = all.flatMap((one) => (one.status === "fulfilled" && !inUse.has(one.value) ? [one.value] : []));
    for (const { id } of idle) this.end(id);
    await Promise.all(this.#revoking);
  }
}
