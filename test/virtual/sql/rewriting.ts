import type { Engine } from "../../../src/core/engine.js";
import { FakeClock } from "../../../src/testing/fake-clock.js";

/** A statement on its way to the server, as a test wants it to be. */
export type Change = (sql: string) => string;

/** Microseconds since 1970, as the reference counts them for its tokens. */
export function momentOf(clock: FakeClock): number {
  return Math.floor(clock.wallMs() * 1000);
}

/**
 * Reads of the server's clock become reads of a virtual one. `reads` are those that the lock table makes; what else tells
 * the time must not be there, or a part of the table would live in another time.
 */
export function rewriter(reads: RegExp, virtual: string, others: RegExp, change: Change): Change {
  const known = new Map<string, string>();
  return (sql) => {
    let text = known.get(sql);
    if (text === undefined) {
      text = change(sql.replaceAll(reads, () => virtual));
      const [left] = others.exec(text) ?? [];
      if (left !== undefined) throw new Error(`"${left}" reads the server's own clock: ${text.slice(0, 200)}`);
      // Those with values in their text are made anew each time.
      if (sql.length < 10_000 && known.size < 1000) known.set(sql, text);
    }
    return text;
  };
}

/** Time stands still for whoever waits for a real server: with each step it gets a turn, or nothing would ever be answered. */
export class ServedClock extends FakeClock {
  readonly #turn: () => Promise<unknown>;

  constructor(turn: () => Promise<unknown>) {
    super();
    this.#turn = turn;
  }

  override async advance(ms: number): Promise<void> {
    await super.advance(ms);
    await this.#turn();
  }
}

/** Parts of texts replaced. Each must be found somewhere, or the text is no longer what somebody thought it was. */
export function replaced(pairs: readonly (readonly [from: string | RegExp, to: string])[]): Change & { check(): void } {
  const missing = new Set(pairs);
  const change = (sql: string): string =>
    pairs.reduce((text, pair) => {
      const after =
        typeof pair[0] === "string" ? text.replaceAll(pair[0], () => pair[1]) : text.replace(pair[0], pair[1]);
      if (after !== text) missing.delete(pair);
      return after;
    }, sql);
  const check = (): void => {
    for (const [from] of missing) throw new Error(`never met: ${String(from)}`);
  };
  return Object.assign(change, { check });
}

/** One step after the other. Steps that join go together with those of the same tick before them, if these join too. */
export class Turns<Step> {
  readonly #start: (steps: readonly Step[]) => Promise<unknown>;
  #last: Promise<unknown> = Promise.resolve();
  #open: Step[] | null = null;

  /** `start` never rejects. */
  constructor(start: (steps: readonly Step[]) => Promise<unknown>) {
    this.#start = start;
  }

  add(step: Step, joins: boolean): void {
    if (joins && this.#open !== null) {
      this.#open.push(step);
      return;
    }
    const steps = [step];
    this.#open = joins ? steps : null;
    this.#last = this.#last.then(() => {
      if (this.#open === steps) this.#open = null;
      return this.#start(steps);
    });
  }

  /** When all that was added before is over. */
  over(): Promise<unknown> {
    return this.#last;
  }
}

/** What the engine puts into batches. */
const BATCHED = new Set<PropertyKey>(["claim", "release"]);
const IN_TURNS = new Set<PropertyKey>([...BATCHED, "renew", "resize", "setCapacity"]);

/**
 * One call after the other, in the order in which they were made: a pool has many connections, and what is asked on two of
 * them at once has no order. With `batches`, claims and releases of one tick are made together: the engine keeps their order.
 */
export function inTurns<E extends Engine>(engine: E, batches: boolean): E {
  const turns = new Turns<() => Promise<unknown>>((calls) => Promise.allSettled(calls.map((call) => call())));
  return new Proxy(engine, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== "function") return value;
      const call = value.bind(target) as (...args: unknown[]) => Promise<unknown>;
      if (!IN_TURNS.has(key)) return call;
      return (...args: unknown[]) =>
        new Promise((resolve, reject) => {
          turns.add(() => call(...args).then(resolve, reject), batches && BATCHED.has(key));
        });
    },
  });
}
