// Beyond the common files of an engine: all verbs are made of transactions, each answered in a term of the quorum's.

import type { Clock } from "../../core/clock.js";
import { Bulk } from "./bulk.js";
import type { EtcdDriver } from "./driver.js";
import { EtcdReplaced } from "./errors.js";
import type { Keys } from "./keys.js";
import type { Header, KeyValue, TxnRequest, TxnResponse } from "./messages.js";
import { remove } from "./requests.js";

/** An answer of the quorum: in which term, and how old it can be at most. */
export type Proof = { readonly sentAt: number; readonly term: bigint };
export type Answered = Proof & { readonly response: TxnResponse; readonly revision: number };

/** etcd's default for --max-txn-ops is 128. */
export const OPERATIONS_MAX = 100;

/**
 * Linearizable transactions: each is answered in a term of the quorum's. Revisions are tokens, so they must never go back:
 * a store that was restored from a backup is refused, for good.
 */
export class Store {
  readonly client: EtcdDriver;
  readonly clock: Clock;
  readonly keys: Keys;
  readonly #wentBack: () => void;
  readonly #bulk: Bulk<Answered>;
  #cluster: bigint | null = null;
  #revision = 0;
  #refusal: string | null = null;

  constructor(client: EtcdDriver, clock: Clock, keys: Keys, wentBack: () => void) {
    this.client = client;
    this.clock = clock;
    this.keys = keys;
    this.#wentBack = wentBack;
    this.#bulk = new Bulk((request) => this.txn(request), remove(keys.probe));
  }

  async txn(request: TxnRequest): Promise<Answered> {
    const sentAt = this.clock.now();
    const known = this.#revision;
    const response = await this.#send(request);
    const { revision, raft_term: term } = response.header;
    // Whatever was answered before this was sent is older than this.
    if (revision < known) this.#refuse(`its revision went back from ${known} to ${revision}`);
    this.#revision = Math.max(this.#revision, revision);
    return { response, sentAt, term, revision };
  }

  /** The same, together with what else is written in this turn of the event loop. `appends`: the name that gets one more claim. */
  write(request: TxnRequest, appends?: string): Promise<Answered> {
    return this.#bulk.write(request, appends);
  }

  /** Whether the cluster that says something is the one that was asked before. */
  isSame({ cluster_id }: Header): boolean {
    return cluster_id === this.#cluster;
  }

  async #send(request: TxnRequest): Promise<TxnResponse> {
    if (this.#refusal !== null) throw new EtcdReplaced(this.#refusal);
    const response = await this.client.call("txn", request);
    const cluster = response.header.cluster_id;
    this.#cluster ??= cluster;
    if (cluster !== this.#cluster) this.#refuse("another cluster answers at its address");
    return response;
  }

  #refuse(what: string): never {
    const first = this.#refusal === null;
    this.#refusal = what;
    if (first) this.#wentBack();
    throw new EtcdReplaced(what);
  }
}

/** What the n-th operation of a transaction found. */
export function found(answered: Answered, n: number): readonly KeyValue[] {
  return answered.response.responses[n]?.response_range?.kvs ?? [];
}
