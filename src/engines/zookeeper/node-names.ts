// Beyond the common files of an engine: nodes have the names of Curator's or of Kazoo's recipes.

import { READERS_MAX } from "../../core/limits.js";
import type { QueueEntry } from "../../queue/queue.js";

/** Whose names our nodes have: those of Curator's locks, of its `LeaderLatch`, or those of Kazoo's. */
export type NodeNames = "curator" | "curator-latch" | "kazoo";

type Form = {
  readonly pattern: RegExp;
  /** What comes between the id and the sequence number. */
  readonly lock: string;
  readonly reader: string;
  readonly writer: string;
  prefix(id: string, numbers: string, word: string): string;
};

const CURATOR = {
  pattern:
    /^_c_(?<id>.+?)-(?:(?<units>\d+)\.(?<capacity>\d+)-)?(?<word>lock-|latch-|__READ__|__WRIT__)(?<sequence>-?\d+)$/,
  prefix: (id: string, numbers: string, word: string) => `_c_${id}-${numbers === "" ? "" : `${numbers}-`}${word}`,
};

const FORMS: Record<NodeNames, Form> = {
  curator: { ...CURATOR, lock: "lock-", reader: "__READ__", writer: "__WRIT__" },
  // A LeaderLatch sorts by what follows this word, and puts nodes without it behind all others.
  "curator-latch": { ...CURATOR, lock: "latch-", reader: "latch-", writer: "latch-" },
  kazoo: {
    pattern: /^(?<id>.+?)(?:\.(?<units>\d+)\.(?<capacity>\d+))?(?<word>__lock__|__rlock__)(?<sequence>-?\d+)$/,
    lock: "__lock__",
    reader: "__rlock__",
    writer: "__lock__",
    prefix: (id, numbers, word) => `${id}${numbers === "" ? "" : `.${numbers}`}${word}`,
  },
};

/** What a word means by itself, for nodes of other libraries too. Everything else is said in numbers. */
const MEANING: Readonly<Record<string, readonly [units: number, capacity: number]>> = {
  "lock-": [1, 1],
  "latch-": [1, 1],
  __READ__: [1, READERS_MAX],
  __WRIT__: [READERS_MAX, READERS_MAX],
  __rlock__: [1, READERS_MAX],
};

export const NODE_NAMES = Object.keys(FORMS);

/** The name of a claim's node up to its sequence number. */
export function nodePrefix(names: NodeNames, id: string, units: number, capacity: number): string {
  const form = FORMS[names];
  const shared = capacity === READERS_MAX && units < READERS_MAX;
  const word = shared ? form.reader : capacity === READERS_MAX ? form.writer : form.lock;
  const [meansUnits, meansCapacity] = MEANING[word] ?? [];
  const plain = form.prefix(escaped(id), "", word);
  // An id that a program chose may end as numbers do: with numbers of its own behind it, it is read as it was given.
  const says = meansUnits === units && meansCapacity === capacity && entryOf(plain + sequenceText(0))?.id === id;
  return says ? plain : form.prefix(escaped(id), `${units}.${capacity}`, word);
}

/** As the server writes it: ten digits, and below zero once the counter has passed 2³¹. */
export function sequenceText(sequence: number): string {
  return sequence < 0 ? `-${String(-sequence).padStart(9, "0")}` : String(sequence).padStart(10, "0");
}

/**
 * Null for a node that is no claim: a folder of another recipe. A node that does not say what it is, such as
 * Kazoo's locks, which look the same for a mutex and for a writer, has no id and takes the whole name.
 */
export function entryOf(key: string): QueueEntry | null {
  for (const { pattern } of Object.values(FORMS)) {
    const { id = "", units, capacity, word = "", sequence } = pattern.exec(key)?.groups ?? {};
    const [meansUnits, meansCapacity] = MEANING[word] ?? [];
    const [takes, of] = [Number(units ?? meansUnits), Number(capacity ?? meansCapacity)];
    if (sequence === undefined || Number.isNaN(takes) || Number.isNaN(of)) continue;
    return { key, id: unescaped(id), units: takes, capacity: of, order: Number(sequence) };
  }
  const [, sequence] = /(-\d{9,10}|\d{10})$/.exec(key) ?? [];
  return sequence === undefined ? null : { key, id: null, units: null, capacity: null, order: Number(sequence) };
}

/** The last number that a folder gives out in order. */
const SEQUENCE_MAX = 2 ** 31 - 1;

/**
 * A folder's counter has 32 bits. What comes after 2³¹ − 1 is no order any more: a server of version 3.8 gives out that
 * number again and again, and −2³¹ in between when it is busy (pitfall 33). From there on only the transaction that
 * created a node tells its position.
 */
export function isOrdered(entries: readonly QueueEntry[]): boolean {
  return entries.every(({ order }) => order >= 0 && order < SEQUENCE_MAX);
}

/** What a path cannot hold, and what has a meaning here: `/`, `%`, and `~`, with which our own nodes begin. */
// oxlint-disable-next-line no-control-regex
const TO_ESCAPE = /[/%~\u0000-\u001f\u007f-\u009f\ud800-\uf8ff\ufff0-\uffff]+/g;

export function escaped(name: string): string {
  if (name === "." || name === "..") return name.replaceAll(".", "%2E");
  return name.replace(TO_ESCAPE, (text) =>
    [...Buffer.from(text)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join(""),
  );
}

export function unescaped(node: string): string {
  try {
    return decodeURIComponent(node);
  } catch {
    // Not one of ours: shown as it is.
    return node;
  }
}

export function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/"));
}

export function keyOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
