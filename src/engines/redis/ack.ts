// Beyond the fixed set of files: the option `ack`, by which a grant counts only when replicas have it.
import type { ClaimAnswer, ClaimRef, ReleaseAnswer, RenewAnswer, RenewRequest } from "../../core/engine.js";
import { EngineRefusedError } from "../../core/errors.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import { groupBy } from "./batch.js";
import type { PipelineConnection, RedisDriver } from "./driver.js";
import { isNoScript, translateError } from "./errors.js";
import {
  type CallScript,
  commandOf,
  type MissingAcks,
  type ScriptAnswers,
  type ScriptName,
  textOf,
} from "./scripts.js";

type Entry = {
  readonly name: ScriptName;
  readonly keys: readonly string[];
  readonly args: readonly string[];
  readonly answered: (answers: ScriptAnswers) => void;
  readonly failed: (cause: unknown) => void;
};

/** A connection that is opened in time; one that is not is cancelled, and leaves nothing open. */
export async function openPipelineInTime(timeouts: CallTimeouts, driver: RedisDriver): Promise<PipelineConnection> {
  const cancellation = new AbortController();
  try {
    return await timeouts.limit(driver.openPipeline(cancellation.signal), (late) => late.close());
  } catch (error) {
    cancellation.abort();
    throw error;
  }
}

/**
 * Runs scripts and waits until replicas have what they wrote. WAIT blocks everything behind it on its connection, so this has
 * its own; what comes while a WAIT is under way goes together with the next one.
 */
export class ReplicaAcks {
  readonly #driver: RedisDriver;
  #connection: PipelineConnection;
  readonly #timeouts: CallTimeouts;
  readonly #needed: () => number;
  readonly #waitMs: number;
  readonly #queue: Entry[] = [];
  #busy = false;
  #closed = false;

  constructor(
    driver: RedisDriver,
    connection: PipelineConnection,
    timeouts: CallTimeouts,
    needed: () => number,
    waitMs: number,
  ) {
    this.#driver = driver;
    this.#connection = connection;
    this.#timeouts = timeouts;
    this.#needed = needed;
    this.#waitMs = waitMs;
  }

  readonly answers: CallScript = (name, keys, args, answered, failed) => {
    this.#queue.push({ name, keys, args, answered, failed });
    if (!this.#busy) void this.#drain();
  };

  /** Another connection, when this one has gone silent. */
  async replace(): Promise<void> {
    const next = await openPipelineInTime(this.#timeouts, this.#driver);
    this.#connection.close();
    this.#connection = next;
    if (this.#closed) next.close();
  }

  close(): void {
    this.#closed = true;
    this.#timeouts.close();
    this.#connection.close();
  }

  async #drain(): Promise<void> {
    this.#busy = true;
    // After this turn of the event loop: claims made together share one WAIT.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const entries = this.#queue.splice(0);
      await Promise.all(this.#groups(entries).map((group) => this.#send(group)));
    }
    this.#busy = false;
  }

  /** A WAIT is about one server: in a Cluster each name goes by itself. */
  #groups(entries: readonly Entry[]): (readonly Entry[])[] {
    if (this.#driver.topology !== "cluster") return [entries];
    return [...groupBy(entries, (entry) => entry.keys[0] ?? "").values()];
  }

  async #send(entries: readonly Entry[], asText = false): Promise<void> {
    const needed = this.#needed();
    const commands = entries.map(({ name, keys, args }) => commandOf(name, keys, args, asText));
    commands.push(["wait", String(needed), String(this.#waitMs)]);
    let replies: readonly unknown[];
    try {
      replies = await this.#timeouts.limit(this.#connection.pipeline(entries[0]?.keys[0] ?? "", commands));
    } catch (cause) {
      for (const entry of entries) entry.failed(translateError(cause));
      return;
    }
    const acked = replies[entries.length];
    const unknownScripts: Entry[] = [];
    entries.forEach((entry, n) => {
      const reply = replies[n];
      if (isNoScript(reply) && !asText) unknownScripts.push(entry);
      else if (reply instanceof Error) entry.failed(translateError(reply));
      else if (acked instanceof Error || acked === undefined) entry.failed(translateError(acked));
      else resolve(entry, reply, Number(acked) < needed ? { acked: Number(acked), needed } : null);
    });
    if (unknownScripts.length > 0) await this.#send(unknownScripts, true);
  }
}

function resolve(entry: Entry, reply: unknown, missingAcks: MissingAcks | null): void {
  try {
    entry.answered({ texts: textOf(reply).split("\n"), missingAcks });
  } catch (cause) {
    entry.failed(cause);
  }
}

/** A grant that too few replicas have. */
export type MissingAckAnswer = MissingAcks & { readonly kind: "missing acks" };

/** Which claims are held with the replicas' acknowledgement. A grant without it is taken back (`pitfalls.md` 37). */
export class AckedGrants {
  readonly #release: (ref: ClaimRef) => Promise<ReleaseAnswer>;
  readonly #acked = new Set<string>();

  constructor(release: (ref: ClaimRef) => Promise<ReleaseAnswer>) {
    this.#release = release;
  }

  async confirmClaim(ref: ClaimRef, answer: ClaimAnswer | MissingAckAnswer): Promise<ClaimAnswer> {
    if (answer.kind === "missing acks") throw await this.#takeBack(ref, answer);
    if (answer.kind === "granted") this.#acked.add(ref.id);
    if (answer.kind !== "queued") return answer;
    // Whoever is next counts when the replicas have its own grant: its client must not let it go on before.
    const { ahead: _, ...queued } = answer;
    return queued;
  }

  async confirmRenewal(
    request: RenewRequest | undefined,
    answer: RenewAnswer,
    missing: MissingAcks | null,
  ): Promise<RenewAnswer> {
    if (request === undefined || answer.kind !== "granted") return answer;
    if (missing === null) {
      this.#acked.add(request.id);
      return answer;
    }
    // The lease that the replicas know of goes on; this one does not count.
    if (this.#acked.has(request.id)) return { kind: "unknown", cause: missingError(missing) };
    // Handed over, and never acknowledged: taken back. Whoever waits claims anew, and that error has the numbers.
    await this.#takeBack(request, missing);
    return { kind: "gone" };
  }

  forget(id: string): void {
    this.#acked.delete(id);
  }

  /** Rejects when the release is not known to have worked. */
  async #takeBack({ name, id }: ClaimRef, missing: MissingAcks): Promise<EngineRefusedError> {
    await this.#release({ name, id });
    const advice = "The grant was taken back. Bring the replicas up, or demand fewer (ack).";
    return new EngineRefusedError("redis", advice, missingError(missing));
  }
}

function missingError({ acked, needed }: MissingAcks): Error {
  return new Error(`${acked} of ${needed} replicas acknowledged in time`);
}
