import type { Call, Hearing, Lane, RedisLike } from "./client.js";

/**
 * A client that we made: another takes its place when its connection has gone silent. Client libraries wait for the end of
 * a connection, which a silent one does not have; and they differ in what of it can be ended from outside.
 */
export class OwnClient implements RedisLike {
  readonly library: string;
  readonly topology: RedisLike["topology"];
  readonly keyPrefix: string;
  readonly resends: boolean;
  readonly #make: (closed: AbortSignal) => Promise<RedisLike>;
  #current: RedisLike;
  readonly #closed = new AbortController();

  /** `make` gives up when its signal aborts. */
  constructor(first: RedisLike, make: (closed: AbortSignal) => Promise<RedisLike>) {
    this.#current = first;
    this.#make = make;
    this.library = first.library;
    this.topology = first.topology;
    this.keyPrefix = first.keyPrefix;
    this.resends = first.resends;
  }

  get offline(): boolean {
    return this.#current.offline;
  }

  get connected(): boolean {
    return this.#current.connected;
  }

  call(key: string | null, command: readonly string[]): Promise<unknown> {
    return this.#current.call(key, command);
  }

  primaries(): Promise<readonly Call[]> {
    return this.#current.primaries();
  }

  hear(heard: (channel: string, message: string) => void, ended: () => void, unwanted: AbortSignal): Promise<Hearing> {
    return this.#current.hear(heard, ended, unwanted);
  }

  lane(unwanted: AbortSignal): Promise<Lane> {
    return this.#current.lane(unwanted);
  }

  readonly replace = async (): Promise<void> => {
    const { signal } = this.#closed;
    const next = await this.#make(signal);
    const old = signal.aborted ? next : this.#current;
    if (!signal.aborted) this.#current = next;
    // What was sent there and not answered fails with it, and is asked again.
    await old.close();
  };

  async close(): Promise<void> {
    this.#closed.abort();
    await this.#current.close();
  }
}
