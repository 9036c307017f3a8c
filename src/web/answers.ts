import { checkCount, checkKnown, checkNumber } from "../core/checks.js";
import { type Clock, SystemClock } from "../core/clock.js";
import type { Answer } from "./answer.js";

/** What is kept of the first request with a key. */
export type StoredAnswer = Pick<Answer, "status" | "headers"> & {
  /** Of the request: another one with the same key is refused. */
  readonly fingerprint: string;
  /** The fencing token under which it was made. */
  readonly token: number;
  /** Null: it was longer than the store's `maxBytes`. */
  readonly body: Uint8Array | null;
};

/** Where answers are kept for requests that come again. A key is 43 letters, digits, `-` and `_`. */
export interface AnswerStore {
  /** Longer bodies are not kept; that there was an answer is. */
  readonly maxBytes: number;
  get(key: string): Promise<StoredAnswer | undefined>;
  /** Keeps it, unless one with a higher token is there: then nothing is changed, and the answer is false. */
  put(key: string, answer: StoredAnswer): Promise<boolean>;
}

export interface AnswersOptions {
  /** How long an answer is kept; a day unless said otherwise. */
  readonly keepMs?: number;
  readonly maxBytes?: number;
  /** For tests. */
  readonly clock?: Clock;
}

export interface MemoryAnswersOptions extends AnswersOptions {
  /** The oldest go first; 10,000 unless said otherwise. */
  readonly maxAnswers?: number;
}

const DAY_MS = 86_400_000;
const KEEP_MAX_MS = 365 * DAY_MS;

export function checkAnswers(options: AnswersOptions, maxBytes: number, most: number): Required<AnswersOptions> {
  return {
    keepMs: checkNumber("keepMs", options.keepMs ?? DAY_MS, 1, KEEP_MAX_MS, "milliseconds"),
    maxBytes: checkCount("maxBytes", options.maxBytes ?? maxBytes, 0, most),
    clock: options.clock ?? new SystemClock(),
  };
}

/** Answers in the memory of this process: for one process, and gone with it. */
export function memoryAnswers(options: MemoryAnswersOptions = {}): AnswerStore {
  checkKnown(options, ["keepMs", "maxBytes", "maxAnswers", "clock"]);
  const { keepMs, maxBytes, clock } = checkAnswers(options, 65_536, 2 ** 26);
  const maxAnswers = checkCount("maxAnswers", options.maxAnswers ?? 10_000, 1, 10_000_000);
  // In the order in which they end.
  const kept = new Map<string, { readonly answer: StoredAnswer; readonly endsAt: number }>();
  const find = (key: string, now: number): StoredAnswer | undefined => {
    const found = kept.get(key);
    return found !== undefined && found.endsAt > now ? found.answer : undefined;
  };
  return {
    maxBytes,
    async get(key) {
      return find(key, clock.now());
    },
    async put(key, answer) {
      const now = clock.now();
      if ((find(key, now)?.token ?? 0) > answer.token) return false;
      kept.delete(key);
      kept.set(key, { answer, endsAt: now + keepMs });
      for (const [oldest, { endsAt }] of kept) {
        if (endsAt > now && kept.size <= maxAnswers) break;
        kept.delete(oldest);
      }
      return true;
    },
  };
}
