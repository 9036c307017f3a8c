import type { Clock } from "../core/clock.js";

/** How much longer each next replacement waits than the one before, while they follow each other. */
const BACKOFF = 2;
const BACKOFF_MAX = 16;

export type SilenceParts = {
  readonly clock: Clock;
  /** How long a call may be unanswered. */
  readonly limitMs: number;
  /** What is silent, as the subject of a sentence. */
  readonly what: string;
  /** Opens another connection and ends the silent one. Null: it is not ours to replace. */
  readonly replace: (() => Promise<void>) | null;
  readonly warn: (message: string) => void;
};

/**
 * Replaces a connection that says nothing: a call that was not answered in time is reported here. TCP does not tell when
 * the other side has vanished without a reset, and a half-sent answer looks the same. One replacement at a time; when the
 * next one is silent too, the pauses between them grow.
 */
export class Silence {
  readonly #parts: SilenceParts;
  #replacing = false;
  #notBefore = Number.NEGATIVE_INFINITY;
  #factor = 1;
  /** While calls are refused for want of a connection: the first and the last of them. */
  #offlineSince = Number.NEGATIVE_INFINITY;
  #offlineAt = Number.NEGATIVE_INFINITY;

  constructor(parts: SilenceParts) {
    this.#parts = parts;
  }

  /** A call was not sent, because there is no connection: a client that finds none by itself for so long is replaced too. */
  readonly offline = (): void => {
    const { clock, limitMs } = this.#parts;
    const now = clock.now();
    // Callers ask again sooner than that: it was there in between.
    if (now - this.#offlineAt > limitMs) this.#offlineSince = now;
    this.#offlineAt = now;
    if (now - this.#offlineSince >= 2 * limitMs) this.unanswered();
  };

  readonly unanswered = (): void => {
    const { clock, limitMs, what, replace, warn } = this.#parts;
    const now = clock.now();
    if (this.#replacing || now < this.#notBefore) return;
    const followed = now < this.#notBefore + BACKOFF_MAX * limitMs;
    this.#factor = followed ? Math.min(BACKOFF_MAX, this.#factor * BACKOFF) : 1;
    this.#notBefore = now + this.#factor * limitMs;
    const silent = `${what} said nothing for ${Math.round(limitMs)} ms`;
    if (replace === null) {
      warn(`${silent}. Only its owner can replace it: give the client a socket timeout, or connect it anew.`);
      return;
    }
    this.#replacing = true;
    replace().then(
      () => {
        this.#replacing = false;
        warn(`${silent} and was replaced.`);
      },
      () => {
        // The store is away, which every call tells by itself. The next call that is not answered tries again.
        this.#replacing = false;
      },
    );
  };
}
