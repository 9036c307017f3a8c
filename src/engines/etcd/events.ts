import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock, Timer } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { behindOthers } from "../../core/turn.js";
import type { EtcdDriver, WatchStream } from "./driver.js";
import type { WatchResponse } from "./messages.js";
import { rangeOf, ServerWatch, type Watch } from "./server-watch.js";

/** So many watches that nobody needs are kept for a while: contenders use few keys again and again, and a watch costs four messages. */
const KEPT_MAX = 32;
const KEPT_MS = 1_000;

/** All watches of an engine on one stream. A stream that breaks is not mended: whoever watched is told, after a pause. */
export class Watches {
  readonly #client: EtcdDriver;
  readonly #clock: Clock;
  readonly #chance: Chance;
  readonly #tell: (event: EngineEvent) => void;
  readonly #watches = new Map<number, ServerWatch>();
  readonly #byRange = new Map<string, ServerWatch>();
  /** Those that nobody needs, and since when: the one that was left last is the last. */
  readonly #kept = new Map<ServerWatch, number>();
  #keptTimer: Timer | null = null;
  #stream: WatchStream | null = null;
  /** Streams before this one have nothing to say any more (pitfall 43). */
  #epoch = 0;
  #opening = false;
  /** Something was heard on the stream: its end is news. */
  #worked = false;
  #nextId = 1;
  #failures = 0;
  #timer: Timer | null = null;
  #brokenSoon: Watch[] = [];
  #closed = false;

  constructor(client: EtcdDriver, clock: Clock, chance: Chance, tell: (event: EngineEvent) => void) {
    this.#client = client;
    this.#clock = clock;
    this.#chance = chance;
    this.#tell = tell;
  }

  add(watch: Watch): () => void {
    if (this.#closed) return () => {};
    const shared = this.#byRange.get(rangeOf(watch));
    const one = shared?.serves(watch) ? shared : this.#begin(watch);
    this.#kept.delete(one);
    one.add(watch);
    return () => {
      const at = this.#brokenSoon.indexOf(watch);
      if (at >= 0) this.#brokenSoon.splice(at, 1);
      if (one.delete(watch) && one.isIdle && this.#watches.get(one.id) === one) this.#keep(one);
    };
  }

  #begin(watch: Watch): ServerWatch {
    const one = new ServerWatch(this.#nextId++, watch);
    this.#watches.set(one.id, one);
    this.#byRange.set(rangeOf(watch), one);
    if (this.#stream !== null) this.#stream.send({ create_request: one.request });
    else void this.#open();
    return one;
  }

  /** Its keys may be used again soon. */
  #keep(one: ServerWatch): void {
    this.#kept.set(one, this.#clock.now());
    const [oldest = one] = this.#kept.keys();
    if (this.#kept.size > KEPT_MAX) this.#end(oldest);
    if (this.#kept.size > 0) this.#keptTimer ??= this.#clock.after(KEPT_MS, () => this.#sweep());
  }

  #sweep(): void {
    this.#keptTimer = null;
    const before = this.#clock.now() - KEPT_MS;
    for (const [one, since] of this.#kept) if (since <= before) this.#end(one);
    if (this.#kept.size > 0) this.#keptTimer = this.#clock.after(KEPT_MS, () => this.#sweep());
  }

  #end(one: ServerWatch): void {
    this.#forget(one);
    const stream = this.#stream;
    // Nobody waits for this; somebody may wait for the reading, the release or the grant that made the watch needless.
    behindOthers(() => stream?.send({ cancel_request: { watch_id: one.id } }));
  }

  #forget(one: ServerWatch): void {
    this.#watches.delete(one.id);
    this.#kept.delete(one);
    if (this.#byRange.get(one.range) === one) this.#byRange.delete(one.range);
  }

  close(): void {
    this.#closed = true;
    this.#epoch += 1;
    this.#forgetAll();
    this.#brokenSoon = [];
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#stream?.close();
    this.#stream = null;
  }

  async #open(): Promise<void> {
    if (this.#opening) return;
    this.#opening = true;
    const epoch = ++this.#epoch;
    try {
      const stream = await this.#client.watch(
        (response) => epoch === this.#epoch && this.#heard(response),
        (cause) => epoch === this.#epoch && this.#ended(cause),
      );
      // Closed, or ended already, while it was opened.
      if (epoch !== this.#epoch) return stream.close();
      this.#stream = stream;
      for (const { request } of this.#watches.values()) stream.send({ create_request: request });
    } catch {
      if (epoch === this.#epoch) this.#ended();
    } finally {
      this.#opening = false;
      // Asked for after this one had failed, and before that was known here.
      if (this.#stream === null && this.#watches.size > 0) void this.#open();
    }
  }

  #heard(response: WatchResponse): void {
    const { header, watch_id, created, canceled } = response;
    const one = this.#watches.get(watch_id);
    if (one === undefined) return;
    if (canceled) {
      // What it was to begin with has been compacted away, or the right to it.
      this.#forget(one);
      this.#breakSoon(one.listeners);
    } else if (created) {
      this.#failures = 0;
      this.#worked = true;
      one.begun(header.revision);
    }
    one.heard(response);
    if (!canceled && one.isNeedless) this.#end(one);
  }

  #ended(cause?: Error): void {
    this.#epoch += 1;
    this.#stream = null;
    const broken = [...this.#watches.values()].flatMap(({ listeners }) => listeners);
    this.#forgetAll();
    if (this.#worked && broken.length > 0) {
      const why = cause === undefined ? "" : ` (${cause.message})`;
      this.#tell({
        kind: "warning",
        message: `the watches in etcd ended${why}: they are made anew, waiters ask meanwhile`,
      });
    }
    this.#worked = false;
    this.#breakSoon(broken);
  }

  #forgetAll(): void {
    this.#watches.clear();
    this.#byRange.clear();
    this.#kept.clear();
    if (this.#keptTimer !== null) this.#clock.cancel(this.#keptTimer);
    this.#keptTimer = null;
  }

  #breakSoon(watches: readonly Watch[]): void {
    this.#brokenSoon.push(...watches);
    if (this.#timer !== null || this.#closed) return;
    this.#failures += 1;
    this.#timer = this.#clock.after(backoffMs(this.#failures, this.#chance), () => {
      this.#timer = null;
      const broken = this.#brokenSoon;
      this.#brokenSoon = [];
      for (const watch of broken) watch.broken();
    });
  }
}
