import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { checkCount, checkKnown } from "../core/checks.js";
import { checkName } from "../core/name.js";
import type { Locks } from "../locks.js";
import { SharedValue } from "../recipes/cell.js";
import { Lock } from "../recipes/lock.js";
import { type AnswerStore, type AnswersOptions, checkAnswers, type StoredAnswer } from "./answers.js";

export interface CellAnswersOptions extends AnswersOptions {
  /** What stands before the names of the cells; `answers` unless said otherwise. */
  readonly name?: string;
  /** How many cells there are; 1,024 unless said otherwise. Every process must say the same. */
  readonly slots?: number;
  /** How long the text in a cell may become; 32 KiB unless said otherwise. What does not fit makes the oldest answers of its cell go. */
  readonly slotBytes?: number;
}

/** An answer in a cell. `e`: when it ends, by the wall clock, which the processes share. */
type Entry = {
  readonly k: string;
  readonly e: number;
  readonly t: number;
  readonly f: string;
  readonly s: number;
  readonly h: StoredAnswer["headers"];
  /** As text where it is, else in base64. */
  readonly b: { readonly text: string } | { readonly base64: string } | null;
};

/**
 * Answers in the cells of the store behind `locks`: for small answers of several processes. A cell knows no end of its own, so
 * there is a fixed number of them, each with the answers of all keys that fall on it; whoever writes takes out what has ended.
 */
export function cellAnswers(locks: Locks, options: CellAnswersOptions = {}): AnswerStore {
  checkKnown(options, ["name", "slots", "slotBytes", "keepMs", "maxBytes", "clock"]);
  const slots = checkCount("slots", options.slots ?? 1_024, 1, 1_000_000);
  const slotBytes = 4 * Math.floor(checkCount("slotBytes", options.slotBytes ?? 32_768, 4_096, 2 ** 19) / 4);
  const { keepMs, maxBytes, clock } = checkAnswers(options, slotBytes / 4, slotBytes / 4);
  const prefix = checkName(options.name ?? "answers");
  checkName(`${prefix}:${slots}`);
  const client = Lock.clientOf(locks.mutex(prefix));
  const cellOf = (key: string): SharedValue<readonly Entry[]> => {
    const slot = createHash("sha256").update(key).digest().readUInt32BE(0) % slots;
    return new SharedValue(client, "answers", `${prefix}:${slot}`);
  };
  // Says now, not with the first request, when the store has no cells.
  cellOf("");
  return {
    maxBytes,
    async get(key) {
      const now = clock.wallMs();
      const entries = (await cellOf(key).read()).value ?? [];
      const found = entries.find(({ k, e }) => k === key && e > now);
      return found && answerOf(found);
    },
    async put(key, answer) {
      let kept = true;
      await cellOf(key).update((before) => {
        const now = clock.wallMs();
        const entries = (before ?? []).filter(({ e }) => e > now);
        kept = !entries.some(({ k, t }) => k === key && t > answer.token);
        if (!kept) return undefined;
        const others = entries.filter(({ k }) => k !== key);
        return fitting([...others, entryOf(key, answer, now + keepMs)], slotBytes);
      });
      return kept;
    },
  };
}

/** The newest that fit; the last one always. */
function fitting(entries: readonly Entry[], bytes: number): readonly Entry[] {
  let left = bytes;
  const from = entries.findLastIndex((entry) => (left -= Buffer.byteLength(JSON.stringify(entry)) + 1) < 0) + 1;
  return entries.slice(Math.min(from, entries.length - 1));
}

function entryOf(key: string, { fingerprint, token, status, headers, body }: StoredAnswer, endsAt: number): Entry {
  const bytes = body && Buffer.from(body);
  const b = bytes && (isUtf8(bytes) ? { text: bytes.toString() } : { base64: bytes.toString("base64") });
  return { k: key, e: endsAt, t: token, f: fingerprint, s: status, h: headers, b };
}

function answerOf({ f, t, s, h, b }: Entry): StoredAnswer {
  const body = b && ("text" in b ? Buffer.from(b.text) : Buffer.from(b.base64, "base64"));
  return { fingerprint: f, token: t, status: s, headers: h, body };
}
