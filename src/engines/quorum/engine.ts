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
  Unlisten,
} from "../../core/engine.js";
import { ClosedError, UnsupportedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { take } from "./claim.js";
import { inspect } from "./inspect.js";
import type { Member } from "./member.js";
import type { Parts } from "./parts.js";
import { renew } from "./renew.js";
import { quorumSize } from "./size.js";
import { poll, QuorumNotReached, type Vote } from "./vote.js";

type Resized = "resized" | "refused" | "gone";

/** Many engines as one: a question is put to all of them, and a quorum decides. */
export class QuorumEngine implements Engine {
  readonly kind = "quorum";
  readonly cells = null;
  readonly #parts: Parts;
  readonly #events: Listeners;
  #closing: Promise<void> | null = null;

  constructor(parts: Parts, events: Listeners) {
    this.#parts = parts;
    this.#events = events;
  }

  get guarantees(): Guarantees {
    return guaranteesOf(this.#engines(), this.#parts.members.length);
  }

  get leaseMinMs(): number {
    return Math.max(1, ...this.#engines().map((engine) => engine.leaseMinMs));
  }

  get resends(): boolean {
    return this.#parts.members.some(({ engine }) => engine?.resends === true);
  }

  async claim(claim: ClaimRequest): Promise<ClaimAnswer> {
    return take(this.#open(), claim);
  }

  async release({ name, id, tombstone }: ReleaseRequest): Promise<ReleaseAnswer> {
    const { claims, leaving, members } = this.#open();
    const claimed = claims.take({ name, id });
    const needed = quorumSize(members.length, claimed?.claim.capacity ?? 1);
    return leaving.leave({ ref: { name, id }, members, needed, claimed, settled: tombstone === "never" });
  }

  async renew(signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    return renew(this.#open(), signs);
  }

  async resize(ref: ClaimRef, units: number): Promise<Resized> {
    const { members, claims } = this.#open();
    const claimed = claims.get(ref);
    const needed = quorumSize(members.length, claimed?.claim.capacity ?? 1);
    const count = (votes: readonly Vote<Resized>[], word: Resized): number =>
      votes.filter((vote) => "answer" in vote && vote.answer === word).length;
    const { decided, all } = this.#poll<Resized, Resized>(
      (engine) => engine.resize(ref, units),
      (votes, open) => {
        if (count(votes, "resized") >= needed) return "resized";
        for (const no of ["refused", "gone"] as const) if (count(votes, no) > members.length - needed) return no;
        if (open > 0) return undefined;
        throw new QuorumNotReached(needed, members.length, votes);
      },
    );
    const word = await decided;
    if (word === "resized" && claimed !== undefined) {
      claimed.claim = { ...claimed.claim, units };
      // Whoever did not hear it is told with the next heartbeat.
      for (const vote of await all) if ("failure" in vote) claimed.at(vote.member.index).unshrunk = true;
    }
    return word;
  }

  /**
   * Holders were counted by the old quorum. A larger capacity that needs a larger one could let more in than it allows, so it
   * is refused; the docs have the table.
   */
  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    const { members } = this.#open();
    const [before, after] = [quorumSize(members.length, from), quorumSize(members.length, to)];
    if (after > before) {
      const missing = `a capacity of ${to} needs ${after} of ${members.length} members, and holders of ${from} were let in by ${before}`;
      throw new UnsupportedError(
        "quorum",
        missing,
        "Use another name for the larger capacity, or wait until all let go.",
      );
    }
    const { decided } = this.#poll<CapacityAnswer, CapacityAnswer>(
      (engine) => engine.setCapacity(name, from, to),
      (votes, open) => {
        const answers = votes.flatMap((vote) => ("answer" in vote ? [vote.answer] : []));
        // So many that neither the old capacity nor a third one finds a quorum.
        if (answers.filter(({ kind }) => kind === "set").length >= before) return { kind: "set" };
        const mismatches = answers.filter(({ kind }) => kind === "mismatch");
        if (mismatches.length > members.length - before) return mismatches[0];
        if (open > 0) return undefined;
        throw new QuorumNotReached(before, members.length, votes);
      },
    );
    return decided;
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#events.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    yield* await inspect(this.#open(), filter);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#events.clear();
    await this.#parts.leaving.stop();
    await Promise.all(this.#parts.members.map((member) => member.close()));
  }

  #poll<T, Result>(
    ask: (engine: Engine, member: Member) => Promise<T>,
    decide: (votes: readonly Vote<T>[], open: number) => Result | undefined,
  ) {
    const { members, settings } = this.#parts;
    return poll<T, Result>(settings.clock, { members, limitMs: settings.memberTimeoutMs, ask, decide });
  }

  #engines(): readonly Engine[] {
    return this.#parts.members.flatMap(({ engine }) => (engine === null ? [] : [engine]));
  }

  #open(): Parts {
    if (this.#closing !== null) throw new ClosedError("using the quorum engine");
    return this.#parts;
  }
}

/** Read off the members; of those that are away nothing is promised. */
function guaranteesOf(engines: readonly Engine[], members: number): Guarantees {
  const all = engines.map((engine) => engine.guarantees);
  const ends = new Set(all.map(({ crashRelease }) => crashRelease));
  return {
    exclusion: "quorum-with-clocks",
    // A member may lose or forget its last token: then the clients' clocks keep the order.
    token: all.some(({ token }) => token === "none") ? "none" : "monotonic-if-clocks",
    order: "none",
    wake: "poll",
    crashRelease: ends.has("session") ? "session" : "lease",
    survivesRestart: all.length === members && all.every(({ survivesRestart }) => survivesRestart),
  };
}
