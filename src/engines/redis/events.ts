import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock, Timer } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import { fenceOf } from "./codec.js";
import type { RedisDriver, SubscriberConnection } from "./driver.js";
import { translateError } from "./errors.js";

export type SubscriptionOptions = {
  readonly driver: RedisDriver;
  readonly clock: Clock;
  readonly chance: Chance;
  /** How long the connection may leave a ping unanswered. */
  readonly callTimeoutMs: number;
  readonly warn: (message: string) => void;
};

const WHAT = "The connection on which Redis pushes";

/** Nothing was answered in time: neither yes nor no. */
class Unanswered extends Error {}

/**
 * The one connection on which this engine is pushed to (`pitfalls.md` 13). When it ends, or leaves a ping unanswered, a new
 * one is opened and the channels are subscribed again. It is pinged only while somebody waits for a push.
 */
export class Subscription {
  readonly #options: SubscriptionOptions;
  readonly #timeouts: CallTimeouts;
  readonly #channels = new Map<string, (message: string) => void>();
  readonly #changeListeners: ((live: boolean) => void)[] = [];
  #connection: SubscriberConnection | null = null;
  #reconnectTimer: Timer | null = null;
  #pingTimer: Timer | null = null;
  /** Since the last check: a message came; somebody waits for a push. */
  #received = false;
  #expected = false;
  #failures = 0;
  #closed = false;

  constructor(options: SubscriptionOptions) {
    this.#options = options;
    this.#timeouts = new CallTimeouts(options.clock, options.callTimeoutMs);
  }

  /** False while there is no connection: then whoever waits has to poll. */
  get live(): boolean {
    return this.#connection !== null;
  }

  /** `listener` is called when the connection is lost, and when there is one again: messages in between were missed. */
  onChange(listener: (live: boolean) => void): void {
    this.#changeListeners.push(listener);
  }

  /**
   * Rejects when the server or a proxy before it cannot do this at all: then there is no subscription. One that is merely too
   * slow is asked again: a busy moment at the start must not cost the pushes for good.
   */
  async open(channel: string, onMessage: (message: string) => void): Promise<void> {
    this.#channels.set(channel, onMessage);
    try {
      await this.#connect();
    } catch (cause) {
      if (!(cause instanceof Unanswered)) throw cause;
      this.#failures = 1;
      this.#reconnectLater();
    }
  }

  /** Somebody waits for a push: for a while the connection is pinged. */
  readonly expectPush = (): void => {
    this.#expected = true;
    if (this.#connection !== null)
      this.#pingTimer ??= this.#options.clock.after(this.#options.callTimeoutMs, this.#check);
  };

  /** One more channel, on the same connection. While there is none the next one subscribes to it. */
  async add(channel: string, onMessage: (message: string) => void): Promise<void> {
    this.#channels.set(channel, onMessage);
    this.expectPush();
    const connection = this.#connection;
    if (connection !== null) await this.#answered(connection, connection.subscribe(channel));
  }

  async remove(channel: string): Promise<void> {
    this.#channels.delete(channel);
    const connection = this.#connection;
    if (connection !== null) await this.#answered(connection, connection.unsubscribe(channel));
  }

  close(): void {
    this.#closed = true;
    const { clock } = this.#options;
    for (const timer of [this.#reconnectTimer, this.#pingTimer]) if (timer !== null) clock.cancel(timer);
    this.#timeouts.close();
    const connection = this.#connection;
    // First: the end of this one is nobody's loss.
    this.#connection = null;
    connection?.close();
  }

  /** Pings the connection when nothing came on it, for as long as somebody waits for a push. */
  readonly #check = (): void => {
    this.#pingTimer = null;
    const connection = this.#connection;
    const [received, expected] = [this.#received, this.#expected];
    this.#received = this.#expected = false;
    // All channels but the first are of cells that somebody watches.
    const watched = this.#channels.size > 1;
    // Whoever waits next starts it again, and so does the next connection.
    if (connection === null || !(expected || watched)) return;
    this.#pingTimer = this.#options.clock.after(this.#options.callTimeoutMs, this.#check);
    // Without an answer `#answered` has given the connection up, which is all there is to do.
    if (!received) this.#answered(connection, connection.ping()).catch(() => {});
  };

  /** Waits for an answer on this connection. Without one in time the connection is given up. */
  async #answered(connection: SubscriberConnection, answer: Promise<unknown>): Promise<void> {
    try {
      await this.#inTime(answer);
    } catch (cause) {
      if (cause instanceof Unanswered && connection === this.#connection) {
        this.#options.warn(`${WHAT} said nothing for ${Math.round(this.#options.callTimeoutMs)} ms and is replaced.`);
        this.#lost();
        connection.close();
      }
      throw cause;
    }
  }

  /** Rejects with `Unanswered` after the time limit, and otherwise with what was answered. */
  async #inTime<T>(call: Promise<T>): Promise<T> {
    let answered = false;
    const done = (): void => void (answered = true);
    call.then(done, done);
    try {
      return await this.#timeouts.limit(call);
    } catch (cause) {
      throw answered ? cause : new Unanswered((cause as Error).message);
    }
  }

  #lost(): void {
    this.#connection = null;
    this.#changed(false);
    this.#reconnectLater();
  }

  #changed(live: boolean): void {
    for (const listener of this.#changeListeners) listener(live);
  }

  async #connect(): Promise<void> {
    let ended = false;
    let mine: SubscriberConnection | null = null;
    const onEnd = (): void => {
      ended = true;
      // A connection that was given up earlier ends late: nothing to do (`pitfalls.md` 43).
      if (mine !== null && mine === this.#connection) this.#lost();
    };
    const onMessage = (channel: string, message: string): void => {
      this.#received = true;
      this.#channels.get(channel)?.(message);
    };
    const cancellation = new AbortController();
    const opening = this.#options.driver.openSubscriber(onMessage, onEnd, cancellation.signal);
    try {
      mine = await this.#inTime(opening);
      const subscribed = new Set<string>();
      while (!this.#closed) {
        const calls = this.#subscribeMissing(mine, subscribed);
        // No await between here and the assignment of #connection: a channel added in between would not be subscribed.
        if (calls === null) break;
        await this.#inTime(calls);
      }
      if (ended) throw new Error("the connection ended while it was subscribed");
    } catch (error) {
      cancellation.abort();
      // Whenever it opens, it is closed; that it does not is thrown below.
      opening.then(
        (late) => late.close(),
        () => {},
      );
      throw error;
    }
    if (this.#closed) return mine.close();
    this.#connection = mine;
    this.#failures = 0;
    if (this.#channels.size > 1) this.expectPush();
  }

  /** Channels may be added and removed meanwhile. Null: the wanted channels are the subscribed ones. */
  #subscribeMissing(connection: SubscriberConnection, subscribed: Set<string>): Promise<unknown> | null {
    const missing = [...this.#channels.keys()].filter((channel) => !subscribed.has(channel));
    const removed = [...subscribed].filter((channel) => !this.#channels.has(channel));
    if (missing.length === 0 && removed.length === 0) return null;
    for (const channel of missing) subscribed.add(channel);
    for (const channel of removed) subscribed.delete(channel);
    return Promise.all([
      ...missing.map((one) => connection.subscribe(one)),
      ...removed.map((one) => connection.unsubscribe(one)),
    ]);
  }

  #reconnectLater(): void {
    if (this.#closed) return;
    const { clock, chance, warn } = this.#options;
    this.#reconnectTimer = clock.after(backoffMs(this.#failures, chance), () => {
      this.#connect().then(
        () => this.#closed || this.#changed(true),
        (cause: unknown) => {
          this.#failures += 1;
          if (this.#failures === 2 && !this.#closed)
            warn(
              `${WHAT} cannot be opened (${translateError(cause).message}): until it can, who waits asks again and again.`,
            );
          this.#reconnectLater();
        },
      );
    });
  }
}

/** A push of the scripts: what happened, to which claim, at which key, and its fence. Undefined for any other message. */
export function parsePush(message: string, nameOf: (key: string) => string): EngineEvent | undefined {
  const [kind, id, key, fence] = message.split("\n");
  if (id === undefined || key === undefined) return undefined;
  const name = nameOf(key);
  if (kind === "lost") return { kind, name, id };
  const [token, floor, live] = (fence ?? "").split(" ");
  return kind === "granted" ? { kind, name, id, ...fenceOf(token, floor, live) } : undefined;
}
