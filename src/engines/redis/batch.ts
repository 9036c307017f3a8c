// Beyond the fixed set of files: claims and releases share how requests of one turn share calls.
import { throwIfErrorText } from "./errors.js";
import type { CallScript, MissingAcks, ScriptName } from "./scripts.js";

/**
 * How many requests one call of a script carries. Few, so that the server works on some while the client reads the answers to
 * others: with all in one call each of them waits for the other.
 */
const REQUESTS_PER_CALL = 8;

type Entry<Answer> = {
  readonly key: string;
  readonly request: string;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (cause: unknown) => void;
};

export type BatchOptions<Answer> = {
  readonly script: ScriptName;
  readonly call: CallScript;
  /** The arguments that follow the requests in every call. */
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
  /** In the order of the requests. */
  #waiting: Entry<Answer>[] = [];
  readonly #keys = new Set<string>();

  constructor(options: BatchOptions<Answer>) {
    this.#options = options;
    this.#requestsPerCall = options.cluster ? 1 : REQUESTS_PER_CALL;
  }

  add(key: string, request: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.length === 0) process.nextTick(this.#flush);
      this.#waiting.push({ key, request, resolve, reject });
      this.#keys.add(key);
    });
  }

  /** Send what waits for this key now: another verb is about to be asked of it, and must come second. */
  flush(key: string): void {
    if (this.#keys.has(key)) this.#flush();
  }

  readonly #flush = (): void => {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#keys.clear();
    const most = this.#requestsPerCall;
    for (let at = 0; at < waiting.length; at += most) this.#send(waiting.slice(at, at + most));
  };

  #send(entries: readonly Entry<Answer>[]): void {
    const { script, call, tail } = this.#options;
    const keys: string[] = [];
    const args: string[] = [];
    for (const { key, request } of entries) {
      keys.push(key);
      args.push(request);
    }
    args.push(...tail);
    const failed = (cause: unknown): void => entries.forEach((entry) => entry.reject(cause));
    try {
      call(
        script,
        keys,
        args,
        ({ texts, missingAcks }) => entries.forEach((entry, n) => this.#answer(entry, texts[n], missingAcks)),
        failed,
      );
    } catch (cause) {
      // A library that throws instead of rejecting.
      failed(cause);
    }
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
