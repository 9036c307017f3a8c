import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock, Timer } from "../../core/clock.js";
import { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { Hearing, RedisLike } from "./client.js";
import { translated } from "./refusals.js";

export type SubscriptionParts = {
  readonly client: RedisLike;
  readonly clock: Clock;
  readonly chance: Chance;
  /** How long the connection may say nothing when it is asked. */
  readonly limitMs: number;
  /** It hears again, after it did not; what was said in between was missed. */
  readonly back: () => void;
  /** It hears nothing, from now on. */
  readonly down: () => void;
  readonly warn: (message: string) => void;
};

const WHAT = "The connection on which Redis pushes";

/**
 * The one connection on which this engine hears (`pitfalls.md` 13), kept up: when it ends, or says nothing when it is asked,
 * a new one is opened and the channels are subscribed again. It is asked only while somebody waits for what it may say.
 */
export class Subscription {
  readonly #parts: SubscriptionParts;
  readonly #deadlines: CallTimeouts;
  readonly #channels = new Map<string, (message: string) => void>();
  #hearing: Hearing | null = null;
  #retry: Timer | null = null;
  #probe: Timer | null = null;
  /** Since the last look: something was heard; somebody waits for a push. */
  #heard = false;
  #expected = false;
  #failures = 0;
  #closed = false;

  constructor(parts: SubscriptionParts) {
    this.#parts = parts;
    this.#deadlines = new CallTimeouts(parts.clock, parts.limitMs);
  }

  /** False while it hears nothing: then whoever waits has to ask. */
  get live(): boolean {
    return this.#hearing !== null;
  }

  /** Rejects when the server or a proxy before it cannot do this at all: then there is no subscription. */
  async open(channel: string, heard: (message: string) => void): Promise<void> {
    this.#channels.set(channel, heard);
    await this.#connect();
  }

  /** Somebody waits for a push: for a while the connection is looked after. */
  readonly expect = (): void => {
    this.#expected = true;
    if (this.#hearing !== null && !this.#closed)
      this.#probe ??= this.#parts.clock.after(this.#parts.limitMs, this.#look);
  };

  /** Hear one more channel, on the same connection. While there is none the next one subscribes to it. */
  async add(channel: string, heard: (message: string) => void): Promise<void> {
    this.#channels.set(channel, heard);
    this.expect();
    const hearing = this.#hearing;
    if (hearing !== null) await this.#asked(hearing, hearing.subscribe(channel));
  }

  async remove(channel: string): Promise<void> {
    this.#channels.delete(channel);
    const hearing = this.#hearing;
    if (hearing !== null) await this.#asked(hearing, hearing.unsubscribe(channel));
  }

  close(): void {
    this.#closed = true;
    for (const timer of [this.#retry, this.#probe]) if (timer !== null) this.#parts.clock.cancel(timer);
    this.#retry = this.#probe = null;
    this.#deadlines.close();
    this.#hearing?.close();
    this.#hearing = null;
  }

  readonly #look = (): void => {
    this.#probe = null;
    const hearing = this.#hearing;
    const [heard, expected] = [this.#heard, this.#expected];
    this.#heard = this.#expected = false;
    // All channels but the first are of cells that somebody watches.
    const watched = this.#channels.size > 1;
    // Whoever waits next starts it again, and so does the next connection.
    if (hearing === null || !(expected || watched)) return;
    this.#probe = this.#parts.clock.after(this.#parts.limitMs, this.#look);
    if (!heard) this.#asked(hearing, hearing.ping()).catch(() => {});
  };

  /** An answer on this connection. Without one in time it is silent, and given up. */
  async #asked(hearing: Hearing, answer: Promise<unknown>): Promise<void> {
    let answered = false;
    const over = (): void => void (answered = true);
    answer.then(over, over);
    try {
      await this.#deadlines.limit(answer);
    } catch (cause) {
      if (!answered && hearing === this.#hearing && !this.#closed) {
        this.#parts.warn(`${WHAT} said nothing for ${Math.round(this.#parts.limitMs)} ms and is replaced.`);
        this.#hearing = null;
        hearing.close();
        this.#parts.down();
        this.#again();
      }
      throw cause;
    }
  }

  async #connect(): Promise<void> {
    const { client } = this.#parts;
    let over = false;
    let mine: Hearing | null = null;
    const ended = (): void => {
      over = true;
      // Of a connection that was given up earlier: nothing to do (`pitfalls.md` 43).
      if (mine === null || mine !== this.#hearing) return;
      this.#hearing = null;
      if (this.#closed) return;
      this.#parts.down();
      this.#again();
    };
    const heard = (channel: string, message: string): void => {
      this.#heard = true;
      this.#channels.get(channel)?.(message);
    };
    const unwanted = new AbortController();
    const opening = client.hear(heard, ended, unwanted.signal);
    // When the time limit strikes first, it is given up; what opens all the same is closed.
    const close = (late: Hearing): void => {
      if (late !== this.#hearing) late.close();
    };
    try {
      mine = await this.#deadlines.limit(opening);
      const subscribed = new Set<string>();
      for (;;) {
        const asked = this.#catchUp(mine, subscribed);
        // From here to where it is the one that hears there is no await: a channel added in between would be nobody's.
        if (asked === null) break;
        await this.#deadlines.limit(asked);
      }
      if (over) throw new Error("the connection ended while it was subscribed");
    } catch (error) {
      unwanted.abort();
      opening.then(close, () => {});
      throw error;
    }
    if (this.#closed) return mine.close();
    this.#hearing = mine;
    this.#failures = 0;
    if (this.#channels.size > 1) this.expect();
  }

  /** Channels may be added and removed meanwhile. Null: what is subscribed is what is asked for. */
  #catchUp(hearing: Hearing, subscribed: Set<string>): Promise<unknown> | null {
    const missing = [...this.#channels.keys()].filter((channel) => !subscribed.has(channel));
    const left = [...subscribed].filter((channel) => !this.#channels.has(channel));
    if (missing.length === 0 && left.length === 0) return null;
    for (const channel of missing) subscribed.add(channel);
    for (const channel of left) subscribed.delete(channel);
    return Promise.all([
      ...missing.map((one) => hearing.subscribe(one)),
      ...left.map((one) => hearing.unsubscribe(one)),
    ]);
  }

  #again(): void {
    if (this.#closed) return;
    const { clock, chance, back, warn } = this.#parts;
    this.#retry = clock.after(backoffMs(this.#failures, chance), () => {
      this.#retry = null;
      this.#connect().then(
        () => this.#closed || back(),
        (cause: unknown) => {
          this.#failures += 1;
          if (this.#failures === 2 && !this.#closed)
            warn(
              `${WHAT} cannot be opened (${translated(cause).message}): until it can, who waits asks again and again.`,
            );
          this.#again();
        },
      );
    });
  }
}
