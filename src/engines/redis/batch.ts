// Beyond the fixed set of files: claims and releases share how requests of one turn share calls.
import { throwIfErrorText } from "./errors.js";
import type { CallScript, MissingAcks, ScriptName } from "./scripts.js";

/**
 * How many requests one call of a script carries. Few, so that the server works on some while the client reads the answers to
 * others: with all in one call each of them waits for the other.
 */
const REQUESTS_PER_CALL = 8;

type Entry<Answer> = {
  /** Its number in the order of the requests. */
  readonly n: number;
  readonly key: string;
  readonly rest: string;
  readonly request: string;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (cause: unknown) => void;
};

export type BatchOptions<Answer> = {
  readonly script: ScriptName;
  readonly call: CallScript;
  /** The arguments that follow the requests and their `rest` in every call. */
  readonly tail: readonly string[];
  readonly parse: (text: string, missingAcks: MissingAcks | null) => Answer;
  readonly cluster: boolean;
};

/**
 * The requests of one verb in one turn of the event loop go to the server together, and the requests for one name in their
 * order. In a Cluster, where a script's keys must live in one slot, each goes by itself.
 */
export class Batch<Answer> {
  readonly #options: BatchOptions<Answer>;
  readonly #requestsPerCall: number;
  /** By what requests have in common (`rest`), which is sent once for all of them. */
  #waiting = new Map<string, Entry<Answer>[]>();
  #keys = new Set<string>();
  #count = 0;

  constructor(options: BatchOptions<Answer>) {
    this.#options = options;
    this.#requestsPerCall = options.cluster ? 1 : REQUESTS_PER_CALL;
  }

  add(key: string, request: string, rest: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.size === 0) process.nextTick(this.#flush);
      const entries = this.#waiting.get(rest);
      this.#count += 1;
      this.#keys.add(key);
      const entry = { n: this.#count, key, request, rest, resolve, reject };
      if (entries === undefined) this.#waiting.set(rest, [entry]);
      else entries.push(entry);
    });
  }

  /** Send what waits for this key now: another verb is about to be asked of it, and must come second. */
  flush(key: string): void {
    if (this.#keys.has(key)) this.#flush();
  }

  readonly #flush = (): void => {
    const groups = this.#waiting;
    this.#waiting = new Map();
    this.#keys = new Set();
    const most = this.#requestsPerCall;
    for (const [rest, entries] of groups.size === 1 ? groups : inOrder(groups)) {
      if (entries.length <= most) this.#send(entries, rest);
      else for (let at = 0; at < entries.length; at += most) this.#send(entries.slice(at, at + most), rest);
    }
  };

  #send(entries: readonly Entry<Answer>[], rest: string): void {
    const { script, call, tail } = this.#options;
    const keys = entries.map((entry) => entry.key);
    const args = [...entries.map((entry) => entry.request), rest, ...tail];
    call(script, keys, args).then(
      ({ texts, missingAcks }) => entries.forEach((entry, n) => this.#answer(entry, texts[n], missingAcks)),
      (cause: unknown) => entries.forEach((entry) => entry.reject(cause)),
    );
  }

  #answer(entry: Entry<Answer>, text: string | undefined, missingAcks: MissingAcks | null): void {
    try {
      if (text === undefined) throw new Error("the script left an answer out");
      throwIfErrorText(text);
      entry.resolve(this.#options.parse(text, missingAcks));
    } catch (cause) {
      entry.reject(cause);
    }
  }
}

/**
 * Several groups, cut where one name stands in two of them: the requests for it keep their order, and calls are served in the
 * order in which they are sent.
 */
function* inOrder<Answer>(groups: Map<string, Entry<Answer>[]>): Generator<[rest: string, entries: Entry<Answer>[]]> {
  const entries = [...groups.values()].flat().toSorted((one, two) => one.n - two.n);
  let cut = new Map<string, Entry<Answer>[]>();
  let restOf = new Map<string, string>();
  for (const entry of entries) {
    const { key, rest } = entry;
    if ((restOf.get(key) ?? rest) !== rest) {
      yield* cut;
      cut = new Map();
      restOf = new Map();
    }
    restOf.set(key, rest);
    const group = cut.get(rest);
    if (group === undefined) cut.set(rest, [entry]);
    else group.push(entry);
  }
  yield* cut;
}

/** `Map.groupBy`, which Node 20 does not have. */
export function groupBy<T>(items: Iterable<T>, keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}
