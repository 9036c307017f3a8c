import type { Cells } from "../../core/cells.js";
import type {
  Answer,
  Claim,
  ClaimRef,
  Engine,
  EngineEvent,
  Leave,
  Renewal,
  Sign,
  Unlisten,
} from "../../core/engine.js";
import { ClosedError, EngineRefusedError } from "../../core/errors.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import { MARK_MS } from "../../core/limits.js";
import type { Promises } from "../../core/promises.js";
import type { AckLane } from "./ack.js";
import type { RedisLike } from "./client.js";
import { askedText, parseAnswer, parsePush, parseRenewal, parseState, parseWord } from "./codec.js";
import type { Deadlines } from "./deadlines.js";
import { grouped } from "./grouped.js";
import { keysLike } from "./scan.js";
import { type Scripts, textOf, textsOf } from "./scripts.js";

/** How many claims one call of the renewal script carries: it holds the server up for well under a millisecond. */
const RENEWALS_PER_CALL = 100;
/** How many of these calls are made before other work of this process gets its turn. */
const CALLS_PER_TURN = 5;

export type Parts = {
  readonly client: RedisLike;
  readonly scripts: Scripts;
  readonly deadlines: Deadlines;
  /** Null: a grant counts when the primary has it. */
  readonly ack: AckLane | null;
  /** This engine's own; empty when it cannot hear. */
  readonly channel: string;
  readonly prefix: string;
  readonly idleMs: number;
  readonly cells: Cells;
  readonly promises: () => Promises;
  readonly dispose: () => Promise<void>;
};

/** The fair layout: the reference algorithm as scripts, one key for each name. */
export class RedisEngine implements Engine {
  readonly kind = "redis";
  readonly leaseMinMs = 1;
  readonly cells: Cells;
  readonly #parts: Parts;
  readonly #idle: string;
  /** Before every lock's key, as this engine writes it; the library may put more before that. */
  readonly #lockPrefix: string;
  readonly #listeners = new Set<(event: EngineEvent) => void>();
  /** Held with the replicas' acknowledgement, where that is demanded. */
  readonly #confirmed = new Set<string>();
  #closed = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#idle = String(parts.idleMs);
    this.#lockPrefix = `${parts.prefix}lock:`;
    this.cells = parts.cells;
  }

  get promises(): Promises {
    return this.#parts.promises();
  }

  async claim(claim: Claim): Promise<Answer> {
    const { id, units, capacity, wait } = claim;
    const asked = askedText(claim, this.#parts.channel);
    const args = [id, String(units), String(capacity), wait ? "1" : "0", asked, this.#idle];
    const keys = [this.#key(claim.name)];
    const { ack } = this.#parts;
    if (ack === null) return parseAnswer(await this.#open().text("claim", keys, args));
    this.#open();
    const { reply, acked, needed } = await ack.run("claim", keys, args);
    const answer = parseAnswer(textOf(reply));
    if (answer.kind !== "granted") return answer;
    if (acked < needed) throw await this.#undo(claim, acked, needed);
    this.#confirmed.add(id);
    return answer;
  }

  async release({ name, id, settled = false }: Leave): Promise<"released" | "gone"> {
    const { client, channel } = this.#parts;
    // Where the library sends commands again on its own, "claimed exactly once" cannot be known (`pitfalls.md` 63).
    const mark = settled && !client.resends ? "0" : "1";
    const args = [id, mark, channel, this.#idle, String(MARK_MS)];
    this.#confirmed.delete(id);
    return parseWord(await this.#open().text("release", [this.#key(name)], args), "released", "gone");
  }

  async renew(signs: readonly Sign[]): Promise<readonly Renewal[]> {
    this.#open();
    const answers: Renewal[] = Array.from({ length: signs.length });
    const calls: Promise<void>[] = [];
    for (const batch of this.#batches(signs)) {
      calls.push(
        this.#renewBatch(batch.map(([, sign]) => sign)).then((renewals) =>
          batch.forEach(([at], n) => {
            answers[at] = renewals[n] ?? { kind: "unknown", cause: new Error("the script left an answer out") };
          }),
        ),
      );
      if (calls.length % CALLS_PER_TURN === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(calls);
    // Nothing was learned: say so as a failed call does.
    const [first] = answers;
    if (first?.kind === "unknown" && answers.every(({ kind }) => kind === "unknown")) throw first.cause;
    return answers;
  }

  async resize({ name, id }: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    const text = await this.#open().text("resize", [this.#key(name)], [id, String(units), this.#idle]);
    return parseWord(text, "resized", "refused", "gone");
  }

  async setCapacity(name: string, capacity: number): Promise<void> {
    const text = await this.#open().text("capacity", [this.#key(name)], [String(capacity), this.#idle]);
    parseWord(text, "changed", "idle");
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async *inspect({ name, prefix = "" }: InspectFilter = {}): AsyncGenerator<NameState> {
    if (name !== undefined) {
      const state = name.startsWith(prefix) ? await this.#state(this.#key(name)) : undefined;
      if (state !== undefined) yield state;
      return;
    }
    this.#open();
    for await (const key of keysLike(this.#parts.client, this.#parts.deadlines, this.#lockPrefix + prefix)) {
      const state = await this.#state(key).catch((error: unknown) => {
        // Another program's key that happens to begin like ours.
        if (error instanceof EngineRefusedError && error.message.includes("WRONGTYPE")) return undefined;
        throw error;
      });
      if (state !== undefined) yield state;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#listeners.clear();
    await this.#parts.dispose();
  }

  /** What was said on this engine's channel. */
  heard(message: string): void {
    const event = parsePush(message, (key) => key.slice(this.#parts.client.keyPrefix.length + this.#lockPrefix.length));
    if (event === undefined) return;
    // A pushed grant counts only when the replicas have it too: whoever waits has to ask.
    if (event.kind === "granted" && this.#parts.ack !== null) {
      this.tell({ kind: "wake", name: event.name, id: event.id });
    } else {
      this.tell(event);
    }
  }

  tell(event: EngineEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  #key(name: string): string {
    return this.#lockPrefix + name;
  }

  async #state(key: string): Promise<NameState | undefined> {
    const texts = await this.#open().texts("inspect", [key], [this.#idle]);
    return parseState(key.slice(this.#lockPrefix.length), texts);
  }

  /** At most 100 claims each; in a Cluster each of one name, because a script's keys must live in one slot. */
  *#batches(signs: readonly Sign[]): Generator<(readonly [at: number, sign: Sign])[]> {
    const all = [...signs.entries()];
    const cluster = this.#parts.client.topology === "cluster";
    const groups = cluster ? grouped(all, ([, sign]) => sign.name).values() : [all];
    for (const group of groups) {
      for (let at = 0; at < group.length; at += RENEWALS_PER_CALL) yield group.slice(at, at + RENEWALS_PER_CALL);
    }
  }

  async #renewBatch(signs: readonly Sign[]): Promise<readonly Renewal[]> {
    const keys = signs.map((sign) => this.#key(sign.name));
    const args = [this.#idle];
    for (const { id, leaseMs, tokenAtLeast } of signs) args.push(id, numberText(leaseMs), numberText(tokenAtLeast));
    const { ack, scripts } = this.#parts;
    try {
      if (ack === null) return (await scripts.texts("renew", keys, args)).map(parseRenewal);
      const { reply, acked, needed } = await ack.run("renew", keys, args);
      const renewals = textsOf(reply).map(parseRenewal);
      return await Promise.all(renewals.map((one, n) => this.#acknowledged(one, signs[n], acked, needed)));
    } catch (cause) {
      return signs.map(() => ({ kind: "unknown", cause }));
    }
  }

  async #acknowledged(renewal: Renewal, sign: Sign | undefined, acked: number, needed: number): Promise<Renewal> {
    if (sign === undefined || renewal.kind !== "granted") return renewal;
    if (acked >= needed) {
      this.#confirmed.add(sign.id);
      return renewal;
    }
    // The lease that the replicas know of goes on; this one does not count.
    if (this.#confirmed.has(sign.id)) return { kind: "unknown", cause: unmet(acked, needed) };
    // Handed over, and never acknowledged: undone. Whoever waits asks anew, and is told the numbers.
    const cause = await this.#undo(sign, acked, needed);
    return cause instanceof EngineRefusedError ? { kind: "gone" } : { kind: "unknown", cause };
  }

  /** Take a grant back that too few replicas have (`pitfalls.md` 37). */
  async #undo({ name, id }: ClaimRef, acked: number, needed: number): Promise<Error> {
    await this.release({ name, id });
    const advice = "The grant was taken back. Bring the replicas up, or demand fewer (ack).";
    return new EngineRefusedError("redis", advice, unmet(acked, needed));
  }

  #open(): Scripts {
    if (this.#closed) throw new ClosedError("using the redis engine");
    return this.#parts.scripts;
  }
}

function numberText(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}

function unmet(acked: number, needed: number): Error {
  return new Error(`${acked} of ${needed} replicas acknowledged in time`);
}
