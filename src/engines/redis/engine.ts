import type { Cells } from "../../core/cells.js";
import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import { ClosedError, EngineRefusedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { Listeners } from "../../engine-kit/listeners.js";
import type { AckLane, Unmet } from "./ack.js";
import { Batch, failIfError, type Send, type Sent } from "./batch.js";
import type { RedisLike } from "./client.js";
import {
  claimRest,
  claimText,
  parseAnswer,
  parseCapacity,
  parsePush,
  parseRenewal,
  parseState,
  parseWord,
} from "./codec.js";
import { grouped } from "./grouped.js";
import { keysLike } from "./scan.js";
import { type ScriptName, type Scripts, textOf } from "./scripts.js";

/** How many claims one call of the renewal script carries, and how many such calls go out before others get their turn. */
const RENEWALS_PER_CALL = 100;
const CALLS_PER_TURN = 5;
const MARK_TEXT = String(TOMBSTONE_MS);

export type Parts = {
  readonly client: RedisLike;
  readonly scripts: Scripts;
  readonly deadlines: CallTimeouts;
  readonly listeners: Listeners;
  /** Called when a claim waits, and so for a push. */
  readonly expect: () => void;
  /** Null: a grant counts when the primary has it. */
  readonly ack: AckLane | null;
  /** This engine's own; empty when it cannot hear. */
  readonly channel: string;
  readonly prefix: string;
  readonly idleMs: number;
  readonly cells: Cells;
  readonly guarantees: () => Guarantees;
  readonly about: () => Promise<ServerInfo>;
  readonly dispose: () => Promise<void>;
};

/** As the release script reads them. */
const TOMBSTONE_CODES = { never: 0, always: 1, "if-missing": 2 } as const;

/** The fair layout: the reference algorithm as scripts, one key for each name. */
export class RedisEngine implements Engine {
  readonly kind = "redis";
  readonly leaseMinMs = 1;
  readonly cells: Cells;
  readonly #parts: Parts;
  readonly #idle: string;
  /** Before every lock's key, as this engine writes it; the library may put more before that. */
  readonly #lockPrefix: string;
  /** Held with the replicas' acknowledgement, where that is demanded. */
  readonly #confirmed = new Set<string>();
  readonly #claims: Batch<ClaimAnswer | Unacked>;
  readonly #releases: Batch<ReleaseAnswer>;
  #closed = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#idle = String(parts.idleMs);
    this.#lockPrefix = `${parts.prefix}lock:`;
    this.cells = parts.cells;
    const cluster = parts.client.topology === "cluster";
    const parse = (text: string, unmet: Unmet | null): ClaimAnswer | Unacked => {
      const answer = parseAnswer(text);
      if (answer.kind === "queued") parts.expect();
      return unmet !== null && answer.kind === "granted" ? { kind: "unacked", ...unmet } : answer;
    };
    const acked: Send = (...call) => this.#acked(...call);
    const unacked: Send = (...call) => this.#unacked(...call);
    this.#claims = new Batch("claim", parts.ack === null ? unacked : acked, parse, cluster);
    const word = (text: string): ReleaseAnswer => parseWord(text, "released", "gone", "revoked");
    this.#releases = new Batch("release", unacked, word, cluster);
  }

  get guarantees(): Guarantees {
    return this.#parts.guarantees();
  }

  get resends(): boolean {
    return this.#parts.client.resends;
  }

  claim(claim: ClaimRequest): Promise<ClaimAnswer> {
    if (this.#closed) return Promise.reject(closed());
    const { channel, ack, idleMs } = this.#parts;
    const key = this.#key(claim.name);
    this.#releases.before(key);
    const asked = this.#claims.ask(key, claimText(claim, idleMs), claimRest(claim, channel));
    return ack === null ? (asked as Promise<ClaimAnswer>) : asked.then((answer) => this.#confirm(claim, answer));
  }

  release({ name, id, tombstone = "always" }: ReleaseRequest): Promise<ReleaseAnswer> {
    if (this.#closed) return Promise.reject(closed());
    const { client, channel } = this.#parts;
    this.#confirmed.delete(id);
    // Where the library sends commands again on its own, "claimed exactly once" cannot be known (`pitfalls.md` 63).
    const tombstoneCode = TOMBSTONE_CODES[client.resends ? "always" : tombstone];
    const key = this.#key(name);
    this.#claims.before(key);
    return this.#releases.ask(key, `${tombstoneCode}${id}`, channel);
  }

  async renew(signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    this.#open();
    const answers: RenewAnswer[] = Array.from({ length: signs.length });
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

  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    const args = [String(from), String(to), this.#idle];
    return parseCapacity(await this.#open().text("capacity", [this.#key(name)], args));
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#parts.listeners.add(listener);
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

  async serverInfo(): Promise<ServerInfo> {
    this.#open();
    return this.#parts.about();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#parts.listeners.clear();
    await this.#parts.dispose();
  }

  /** What was said on this engine's channel. */
  heard(message: string): void {
    const event = parsePush(message, (key) => key.slice(this.#parts.client.keyPrefix.length + this.#lockPrefix.length));
    if (event === undefined) return;
    // A pushed grant counts only when the replicas have it too: whoever waits has to ask.
    const { ack, listeners } = this.#parts;
    const wakes = event.kind === "granted" && ack !== null;
    listeners.tell(wakes ? { kind: "wake", name: event.name, id: event.id } : event);
  }

  #key(name: string): string {
    return this.#lockPrefix + name;
  }

  async #state(key: string): Promise<NameState | undefined> {
    const texts = await this.#open().texts("inspect", [key], [this.#idle]);
    return parseState(key.slice(this.#lockPrefix.length), texts);
  }

  /** At most 100 claims each; in a Cluster each of one name, because a script's keys must live in one slot. */
  *#batches(signs: readonly RenewRequest[]): Generator<(readonly [at: number, sign: RenewRequest])[]> {
    const all = [...signs.entries()];
    const cluster = this.#parts.client.topology === "cluster";
    const groups = cluster ? grouped(all, ([, sign]) => sign.name).values() : [all];
    for (const group of groups) {
      for (let at = 0; at < group.length; at += RENEWALS_PER_CALL) yield group.slice(at, at + RENEWALS_PER_CALL);
    }
  }

  async #renewBatch(signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const keys = signs.map((sign) => this.#key(sign.name));
    const requests = signs.map(({ id, leaseMs = "", tokenAtLeast = "" }) => `${id}\n${leaseMs}\n${tokenAtLeast}`);
    try {
      const { texts, unmet } = await this.#acked("renew", keys, requests, null);
      const renewals = texts.map(renewalOf);
      if (renewals.some(({ kind }) => kind === "queued")) this.#parts.expect();
      if (this.#parts.ack === null) return renewals;
      return await Promise.all(renewals.map((one, n) => this.#acknowledged(one, signs[n], unmet)));
    } catch (cause) {
      return signs.map(() => ({ kind: "unknown", cause }));
    }
  }

  #unacked(name: ScriptName, keys: readonly string[], requests: readonly string[], rest: Rest): Promise<Sent> {
    return this.#parts.scripts.run(name, keys, this.#arguments(name, requests, rest), sentOf);
  }

  /** The answers of a script whose grants count only when the replicas have them, where that is demanded. */
  async #acked(name: ScriptName, keys: readonly string[], requests: readonly string[], rest: Rest): Promise<Sent> {
    const { ack } = this.#parts;
    if (ack === null) return this.#unacked(name, keys, requests, rest);
    const { reply, unmet } = await ack.run(name, keys, this.#arguments(name, requests, rest));
    return { texts: textOf(reply).split("\n"), unmet };
  }

  #arguments(name: ScriptName, requests: readonly string[], rest: Rest): readonly string[] {
    if (rest === null) return [...requests, this.#idle];
    return name === "release" ? [...requests, rest, this.#idle, MARK_TEXT] : [...requests, rest, this.#idle];
  }

  async #confirm(claim: ClaimRequest, answer: ClaimAnswer | Unacked): Promise<ClaimAnswer> {
    if (answer.kind === "unacked") throw await this.#undo(claim, answer);
    if (answer.kind === "granted") this.#confirmed.add(claim.id);
    return answer;
  }

  async #acknowledged(renewal: RenewAnswer, sign: RenewRequest | undefined, unmet: Unmet | null): Promise<RenewAnswer> {
    if (sign === undefined || renewal.kind !== "granted") return renewal;
    if (unmet === null) {
      this.#confirmed.add(sign.id);
      return renewal;
    }
    // The lease that the replicas know of goes on; this one does not count.
    if (this.#confirmed.has(sign.id)) return { kind: "unknown", cause: unmetError(unmet) };
    // Handed over, and never acknowledged: undone. Whoever waits asks anew, and is told the numbers.
    await this.#undo(sign, unmet);
    return { kind: "gone" };
  }

  /** Take a grant back that too few replicas have (`pitfalls.md` 37). Rejects when that is not known to have worked. */
  async #undo({ name, id }: ClaimRef, unmet: Unmet): Promise<EngineRefusedError> {
    await this.release({ name, id });
    const advice = "The grant was taken back. Bring the replicas up, or demand fewer (ack).";
    return new EngineRefusedError("redis", advice, unmetError(unmet));
  }

  #open(): Scripts {
    if (this.#closed) throw closed();
    return this.#parts.scripts;
  }
}

/** What all requests of a call have in common; null for a script that has no use for it. */
type Rest = string | null;

/** A grant that too few replicas have. */
type Unacked = Unmet & { readonly kind: "unacked" };

function sentOf(reply: unknown): Sent {
  const text = textOf(reply);
  return { texts: text.includes("\n") ? text.split("\n") : [text], unmet: null };
}

function renewalOf(text: string): RenewAnswer {
  try {
    failIfError(text);
    return parseRenewal(text);
  } catch (cause) {
    return { kind: "unknown", cause };
  }
}

function unmetError({ acked, needed }: Unmet): Error {
  return new Error(`${acked} of ${needed} replicas acknowledged in time`);
}

function closed(): ClosedError {
  return new ClosedError("using the redis engine");
}
