// Beyond one file per library: what only a client that we made can do.
import type { Call, PipelineConnection, RedisDriver, SubscriberConnection } from "../driver.js";

/**
 * The driver of a client that we made: another client takes its place when its connection has gone silent. Client libraries
 * wait for the end of a connection, which a silent one does not have; and they differ in what of it can be ended from outside.
 */
export class ReplaceableDriver implements RedisDriver {
  readonly library: string;
  readonly topology: RedisDriver["topology"];
  readonly keyPrefix: string;
  readonly resends: boolean;
  readonly #make: (closed: AbortSignal) => Promise<RedisDriver>;
  #current: RedisDriver;
  readonly #closed = new AbortController();

  /** `make` gives up when its signal aborts. */
  constructor(first: RedisDriver, make: (closed: AbortSignal) => Promise<RedisDriver>) {
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

  openSubscriber(...args: Parameters<RedisDriver["openSubscriber"]>): Promise<SubscriberConnection> {
    return this.#current.openSubscriber(...args);
  }

  openPipeline(cancelled: AbortSignal): Promise<PipelineConnection> {
    return this.#current.openPipeline(cancelled);
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
