import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock, Timer } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { behindOthers } from "../../core/turn.js";
import type { EtcdDriver, WatchStream } from "./driver.js";
import type { Header, WatchEvent, WatchResponse } from "./messages.js";

type Watch = {
  readonly key: string;
  readonly range_end?: string;
  /** The first revision to be told of; without it, what comes from now on. */
  readonly start_revision?: number;
  /**
   * What happened from `start_revision` on, before the server began to tell, has to be read. A watch that says so begins with
   * what comes from now on: at one that begins in the past, as each does on a busy server, etcd looks ten times a second (52 ms late on
   * average, instead of 0.1).
   */
  readonly missed?: () => void;
  readonly heard: (events: readonly WatchEvent[], header: Header) => void;
  /** It hears nothing any more: read the key, and watch again. */
  readonly broken: () => void;
};

/** All watches of an engine on one stream. A stream that breaks is not mended: whoever watched is told, after a pause. */
export class Watches {
  readonly #client: EtcdDriver;
  readonly #clock: Clock;
  readonly #chance: Chance;
  readonly #tell: (event: EngineEvent) => void;
  readonly #watches = new Map<number, Watch>();
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
    const id = this.#nextId++;
    if (this.#closed) return () => {};
    this.#watches.set(id, watch);
    if (this.#stream !== null) this.#create(this.#stream, id, watch);
    else void this.#open();
    return () => {
      const at = this.#brokenSoon.indexOf(watch);
      if (at >= 0) this.#brokenSoon.splice(at, 1);
      if (!this.#watches.delete(id)) return;
      const stream = this.#stream;
      // Nobody waits for this; somebody may wait for the reading, the release or the grant that made the watch needless.
      behindOthers(() => stream?.send({ cancel_request: { watch_id: id } }));
    };
  }

  close(): void {
    this.#closed = true;
    this.#epoch += 1;
    this.#watches.clear();
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
      for (const [id, watch] of this.#watches) this.#create(stream, id, watch);
    } catch {
      if (epoch === this.#epoch) this.#ended();
    } finally {
      this.#opening = false;
      // Asked for after this one had failed, and before that was known here.
      if (this.#stream === null && this.#watches.size > 0) void this.#open();
    }
  }

  #create(stream: WatchStream, watch_id: number, { key, range_end, start_revision, missed }: Watch): void {
    const range = range_end === undefined ? {} : { range_end };
    const start = start_revision === undefined || missed !== undefined ? {} : { start_revision };
    stream.send({ create_request: { key, watch_id, ...range, ...start } });
  }

  #heard({ header, watch_id: id, created, canceled, events }: WatchResponse): void {
    const watch = this.#watches.get(id);
    if (watch === undefined) return;
    if (canceled) {
      // What it was to begin with has been compacted away, or the right to it.
      this.#watches.delete(id);
      this.#breakSoon([watch]);
    } else if (created) {
      this.#failures = 0;
      this.#worked = true;
      if (header.revision >= (watch.start_revision ?? Infinity)) watch.missed?.();
    }
    // A member that lags behind tells of what was known before: of a key, perhaps, that was another claim's then.
    const news = events.filter(({ kv }) => kv === undefined || kv.mod_revision >= (watch.start_revision ?? 0));
    if (news.length > 0) watch.heard(news, header);
  }

  #ended(cause?: Error): void {
    this.#epoch += 1;
    this.#stream = null;
    const broken = [...this.#watches.values()];
    this.#watches.clear();
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
