import type { Chance, Clock, Timer } from "../../core/clock.js";
import type { Deadlines } from "../../core/deadlines.js";
import { RETRY_MAX_MS, RETRY_MIN_MS } from "../../core/limits.js";
import type { Hearing, RedisLike } from "./client.js";

/**
 * The one connection on which this engine hears (`pitfalls.md` 13), kept up: when it ends a new one is opened, the
 * channels are subscribed again, and then `back` is called, because what was said in between was missed.
 */
export class Subscription {
  readonly #client: RedisLike;
  readonly #deadlines: Deadlines;
  readonly #clock: Clock;
  readonly #chance: Chance;
  readonly #channels = new Map<string, (message: string) => void>();
  readonly #back: () => void;
  #hearing: Hearing | null = null;
  #timer: Timer | null = null;
  #failures = 0;
  #closed = false;

  constructor(client: RedisLike, deadlines: Deadlines, clock: Clock, chance: Chance, back: () => void) {
    this.#client = client;
    this.#deadlines = deadlines;
    this.#clock = clock;
    this.#chance = chance;
    this.#back = back;
  }

  /** Rejects when the server or a proxy before it cannot do this at all: then there is no subscription. */
  async open(channel: string, heard: (message: string) => void): Promise<void> {
    this.#channels.set(channel, heard);
    await this.#connect();
  }

  /** Hear one more channel, on the same connection. */
  async add(channel: string, heard: (message: string) => void): Promise<void> {
    this.#channels.set(channel, heard);
    if (this.#hearing !== null) await this.#deadlines.within(this.#hearing.subscribe(channel));
  }

  async remove(channel: string): Promise<void> {
    this.#channels.delete(channel);
    if (this.#hearing !== null) await this.#deadlines.within(this.#hearing.unsubscribe(channel));
  }

  close(): void {
    this.#closed = true;
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
    this.#hearing?.close();
    this.#hearing = null;
  }

  async #connect(): Promise<void> {
    let over = false;
    let mine: Hearing | null = null;
    const ended = (): void => {
      over = true;
      // Of a connection that was given up earlier: nothing to do (`pitfalls.md` 43).
      if (mine === null || mine !== this.#hearing) return;
      this.#hearing = null;
      this.#again();
    };
    const heard = (channel: string, message: string): void => this.#channels.get(channel)?.(message);
    const opening = this.#client.hear(heard, ended);
    // When the time limit strikes first, what opens later is closed.
    const close = (late: Hearing): void => {
      if (late !== this.#hearing) late.close();
    };
    try {
      mine = await this.#deadlines.within(opening);
      const hearing = mine;
      await this.#deadlines.within(Promise.all([...this.#channels.keys()].map((one) => hearing.subscribe(one))));
      if (over) throw new Error("the connection ended while it was subscribed");
    } catch (error) {
      opening.then(close, () => {});
      throw error;
    }
    if (this.#closed) return mine.close();
    this.#hearing = mine;
    this.#failures = 0;
  }

  #again(): void {
    if (this.#closed) return;
    const mostMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(this.#failures, 10));
    const delayMs = mostMs * (0.5 + this.#chance.fraction() / 2);
    this.#timer = this.#clock.after(delayMs, () => {
      this.#timer = null;
      this.#connect().then(
        () => this.#closed || this.#back(),
        () => {
          this.#failures += 1;
          this.#again();
        },
      );
    });
  }
}
