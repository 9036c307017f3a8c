import type { Unmet } from "./ack.js";
import { translated } from "./refusals.js";
import type { ScriptName } from "./scripts.js";

/** How many claims one call of a script carries: it holds the server up for well under a millisecond. */
const MOST_PER_CALL = 100;

/** An answer for each request, in order, and whether too few replicas have them, where that matters. */
export type Sent = { readonly texts: readonly string[]; readonly unmet: Unmet | null };

/** One call of a script for several requests, which have `rest` in common. */
export type Send = (
  name: ScriptName,
  keys: readonly string[],
  requests: readonly string[],
  rest: string,
) => Promise<Sent>;

type Entry<Answer> = {
  /** The n-th that was asked. */
  readonly n: number;
  readonly key: string;
  readonly rest: string;
  readonly request: string;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (cause: unknown) => void;
};

/**
 * What is asked of one verb in one turn of the event loop goes to the server in one call, and what is asked of one name
 * goes in the order in which it was asked. Not together in a Cluster, where a script's keys must live in one slot: there
 * each goes by itself.
 */
export class Batch<Answer> {
  readonly #name: ScriptName;
  readonly #send: Send;
  readonly #parse: (text: string, unmet: Unmet | null) => Answer;
  readonly #most: number;
  /** By what their requests have in common: who asks is sent once for all of them. */
  #waiting = new Map<string, Entry<Answer>[]>();
  #keys = new Set<string>();
  #asked = 0;

  constructor(name: ScriptName, send: Send, parse: (text: string, unmet: Unmet | null) => Answer, cluster: boolean) {
    this.#name = name;
    this.#send = send;
    this.#parse = parse;
    this.#most = cluster ? 1 : MOST_PER_CALL;
  }

  ask(key: string, request: string, rest: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.size === 0) process.nextTick(this.#flush);
      const entries = this.#waiting.get(rest);
      this.#asked += 1;
      this.#keys.add(key);
      const entry = { n: this.#asked, key, request, rest, resolve, reject };
      if (entries === undefined) this.#waiting.set(rest, [entry]);
      else entries.push(entry);
    });
  }

  /** Another verb is about to be asked of this name: what waits here was asked before that. */
  before(key: string): void {
    if (this.#keys.has(key)) this.#flush();
  }

  readonly #flush = (): void => {
    const groups = this.#waiting;
    this.#waiting = new Map();
    this.#keys = new Set();
    for (const [rest, entries] of groups.size === 1 ? groups : inOrder(groups)) {
      if (entries.length <= this.#most) this.#call(entries, rest);
      else for (let at = 0; at < entries.length; at += this.#most) this.#call(entries.slice(at, at + this.#most), rest);
    }
  };

  #call(entries: readonly Entry<Answer>[], rest: string): void {
    const keys = entries.map((entry) => entry.key);
    const requests = entries.map((entry) => entry.request);
    this.#send(this.#name, keys, requests, rest).then(
      ({ texts, unmet }) => entries.forEach((entry, n) => this.#settle(entry, texts[n], unmet)),
      (cause: unknown) => entries.forEach((entry) => entry.reject(cause)),
    );
  }

  #settle(entry: Entry<Answer>, text: string | undefined, unmet: Unmet | null): void {
    try {
      if (text === undefined) throw new Error("the script left an answer out");
      failIfError(text);
      entry.resolve(this.#parse(text, unmet));
    } catch (cause) {
      entry.reject(cause);
    }
  }
}

/**
 * Several groups, cut where one name stands in two of them: what was asked of it first goes first, and calls are served in
 * the order in which they are sent.
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

/** "error <message>": one request of several failed by itself. */
export function failIfError(text: string): void {
  if (text.startsWith("error ")) throw translated(new Error(text.slice("error ".length)));
}
