// Beyond the common files of an engine: all claims live by one session, whose deadline is counted here.

import type { Clock, Timer } from "../../core/clock.js";
import type { SessionEvent, ZooKeeperDriver } from "./driver.js";
import { CODE, hasCode } from "./errors.js";

/** A server that follows passes on that a session lives when the leader asks, twice a tick; a session lasts two ticks at least. */
const PASSED_ON = 1 / 4;
/** How often to send a heartbeat: two of them may be late before the oldest is too old to be of use. */
const BEAT = 1 / 6;
/** Heartbeats that are not proven yet. */
const HEARTBEATS_MAX = 32;

/** What a server says no to has been decided all the same: by the leader, with a majority. */
const DECIDED: readonly number[] = [
  CODE.noNode,
  CODE.noAuth,
  CODE.badVersion,
  CODE.noChildrenForEphemerals,
  CODE.nodeExists,
  CODE.notEmpty,
  CODE.invalidAcl,
  CODE.quotaExceeded,
];

type Heartbeat = { readonly sentAt: number; readonly answeredAt: number };

/** What happens to the session. */
export type SessionHandlers = {
  ended(): void;
  connected(): void;
  warned(message: string): void;
};

/**
 * Until when the leader keeps our session, by our own clock. All claims live by it.
 *
 * A server that is cut off from the leader goes on answering pings and reads for seconds after the leader has ended the
 * session (pitfall 51). So an answer proves nothing by itself. A *write* that is confirmed proves that this server
 * was connected to the leader then, and therefore that the leader knows of every heartbeat that the server had from us well
 * before. The deadline counts from the last such heartbeat: the last but one, in other words, of two that are far enough apart.
 */
export class Session {
  readonly client: ZooKeeperDriver;
  readonly clock: Clock;
  readonly #handlers: SessionHandlers;
  readonly #beatPath: string;
  #heartbeats: Heartbeat[] = [];
  /** The newest heartbeat that the leader is known to have heard of. */
  #heardOf = -Infinity;
  #connected = false;
  /** One more with each connection: what one of them answered says nothing about another. */
  #epoch = 0;
  #beat: Timer | null = null;
  readonly #later = new Map<Timer, () => Promise<unknown>>();
  #closed = false;

  constructor(client: ZooKeeperDriver, clock: Clock, beatPath: string, handlers: SessionHandlers) {
    this.client = client;
    this.clock = clock;
    this.#beatPath = beatPath;
    this.#handlers = handlers;
  }

  start(): Promise<void> {
    return this.client.start(this.#told);
  }

  get timeoutMs(): number {
    return this.client.sessionTimeoutMs;
  }

  /** The leader does not end the session before this. */
  get until(): number {
    return this.#heardOf + this.timeoutMs;
  }

  async read<T>(call: (client: ZooKeeperDriver) => Promise<T>): Promise<T> {
    const [epoch, sentAt] = [this.#epoch, this.clock.now()];
    const answer = await call(this.client);
    this.#answered(epoch, sentAt, false);
    return answer;
  }

  async write<T>(call: (client: ZooKeeperDriver) => Promise<T>): Promise<T> {
    const [epoch, sentAt] = [this.#epoch, this.clock.now()];
    try {
      const answer = await call(this.client);
      this.#answered(epoch, sentAt, true);
      return answer;
    } catch (error) {
      if (hasCode(error, ...DECIDED)) this.#answered(epoch, sentAt, true);
      throw error;
    }
  }

  /** Something that may be left undone: a session that ends takes its nodes along. */
  afterwards(ms: number, run: () => Promise<unknown>): void {
    if (this.#closed) return;
    const timer = this.clock.after(ms, () => {
      this.#later.delete(timer);
      run().catch(() => {});
    });
    this.#later.set(timer, run);
  }

  /** `own`: the client was made for this engine and is closed, which ends the session and with it all of its nodes. */
  async close(own: boolean): Promise<void> {
    this.#closed = true;
    this.#rest();
    for (const timer of this.#later.keys()) this.clock.cancel(timer);
    const later = [...this.#later.values()];
    this.#later.clear();
    this.client.stop(this.#told);
    if (own) await this.client.close();
    // The session goes on: what was to be done later is done now.
    else await Promise.allSettled(later.map((run) => run()));
  }

  readonly #told = (event: SessionEvent): void => {
    if (this.#closed) return;
    if (event.kind === "warning") return this.#handlers.warned(event.message);
    this.#epoch += 1;
    this.#heartbeats = [];
    this.#connected = event.kind === "connected";
    this.#rest();
    if (event.kind === "ended") {
      this.#heardOf = -Infinity;
      this.#handlers.ended();
    }
    if (event.kind !== "connected") return;
    // A new session is itself something that a majority decided. Before a server resumes one it asks the leader, who counts
    // the session's time anew; so any write on this connection proves that it was the leader of a majority who said so, for
    // a server that gets another leader ends its connections.
    if (event.fresh) this.#heardOf = event.sentAt;
    this.#heartbeats.push({ sentAt: event.sentAt, answeredAt: -Infinity });
    this.#beatLater();
    this.#handlers.connected();
  };

  #answered(epoch: number, sentAt: number, decided: boolean): void {
    if (epoch !== this.#epoch || !this.#connected) return;
    const passedOnMs = this.timeoutMs * PASSED_ON;
    if (decided) {
      const proven = this.#heartbeats.findLastIndex((heartbeat) => heartbeat.answeredAt + passedOnMs <= sentAt);
      const heartbeat = this.#heartbeats[proven];
      if (heartbeat !== undefined) this.#heardOf = Math.max(this.#heardOf, heartbeat.sentAt);
      this.#heartbeats.splice(0, proven + 1);
    }
    // Many of them in a short time are worth no more than one.
    const last = this.#heartbeats.at(-1);
    if (last !== undefined && sentAt - last.sentAt < this.timeoutMs / HEARTBEATS_MAX) return;
    this.#heartbeats.push({ sentAt, answeredAt: this.clock.now() });
    if (this.#heartbeats.length > HEARTBEATS_MAX) this.#heartbeats.shift();
  }

  #beatLater(): void {
    this.#beat = this.clock.after(this.timeoutMs * BEAT, () => {
      // Whether it is answered is seen by whoever needs it; a lost connection is told elsewhere.
      this.read((client) => client.exists(this.#beatPath)).catch(() => {});
      this.#beatLater();
    });
  }

  #rest(): void {
    if (this.#beat !== null) this.clock.cancel(this.#beat);
    this.#beat = null;
  }
}
