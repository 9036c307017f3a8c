import { NotAcquired } from "../core/cancellation.js";
import type { Client } from "../core/client.js";
import { WaitTimeoutError } from "../core/errors.js";
import type { Hold } from "../core/hold.js";
import { type HolderState, type Owner, ownerText } from "../core/inspect.js";
import type { Terms } from "../core/options.js";
import { Meeting, type MeetOptions, type Party, type Round } from "./meeting.js";
import { checkWait, type WaitOptions, waitUntil } from "./wait-until.js";

/** A number of parties begin together and end together. A party that dies inside is gone with its lease. */
export class DoubleBarrier {
  readonly #client: Client;
  readonly #meeting: Meeting;

  /** @internal */
  constructor(client: Client, name: string, parties: number) {
    this.#client = client;
    this.#meeting = new Meeting(client, "double barrier", name, parties);
  }

  get name(): string {
    return this.#meeting.name;
  }

  get parties(): number {
    return this.#meeting.parties;
  }

  /** Resolves when all parties are here. Throws `WaitTimeoutError` when `waitMs` is over. */
  async enter(options: MeetOptions = {}): Promise<Stay> {
    return new Stay(this.#client, this.#meeting, await this.#meeting.meet(this.#meeting.terms(options)));
  }
}

/** A party inside a double barrier. */
export class Stay {
  readonly #client: Client;
  readonly #meeting: Meeting;
  readonly #hold: Hold;
  #said: Promise<void> | null = null;

  /** @internal */
  constructor(client: Client, meeting: Meeting, hold: Hold) {
    this.#client = client;
    this.#meeting = meeting;
    this.#hold = hold;
  }

  /** Aborted with a `LockLostError` when the others may believe that this party died. */
  get signal(): AbortSignal {
    return this.#hold.signal;
  }

  /**
   * Say that this party is done, and wait until all others are, or are dead. Answers who died inside. After a
   * `WaitTimeoutError`, whose `missing` are those still inside, it may be called again.
   */
  async leave(options: WaitOptions = {}): Promise<{ readonly died: readonly Owner[] }> {
    const terms = checkWait(this.#client, options);
    this.#said ??= this.#sayDone().catch((error: unknown) => {
      // Not said: the next call tries again.
      this.#said = null;
      throw error;
    });
    await this.#said;
    try {
      return await this.#allDone(terms);
    } finally {
      // Kept until here: while anybody is inside, nobody tidies up what the others still have to read. A claim that could not
      // be given back ends with its lease, and what was not tidied up is by the next round.
      await this.#hold.release().catch(() => {});
      await this.#meeting.tidy().catch(() => {});
    }
  }

  /** Who is done is told apart from the dead by having said so. */
  async #sayDone(): Promise<void> {
    const { id } = this.#hold;
    this.#hold.throwIfLost();
    await this.#meeting.value.update((round) =>
      !isPartOf(round, id) || round.left.includes(id) ? undefined : { ...round, left: [...round.left, id] },
    );
  }

  async #allDone(terms: Pick<Terms, "waitMs" | "signal">): Promise<{ readonly died: readonly Owner[] }> {
    let inside: readonly HolderState[] = [];
    const done = await waitUntil(this.#client, terms, {
      name: this.#meeting.name,
      watch: (changed) => this.#meeting.value.watch(changed),
      nextMs: () => Math.min(...inside.map((holder) => holder.leftMs)),
      check: async () => {
        const { value } = await this.#meeting.value.read();
        // Another round, or none: everybody of this one is out.
        if (!isPartOf(value, this.#hold.id)) return { died: [] };
        const staying = value.met.filter(({ id }) => !value.left.includes(id));
        inside = await this.#live(staying);
        return inside.length === 0 ? { died: staying.map(({ owner }) => owner) } : null;
      },
    });
    if (!(done instanceof NotAcquired)) return done;
    const missing = inside.map(({ owner }) => owner);
    const standing = `${missing.map(ownerText).join(", ")} did not leave`;
    throw new WaitTimeoutError(this.#meeting.name, done.waitedMs, standing, missing);
  }

  async #live(parties: readonly Party[]): Promise<readonly HolderState[]> {
    const ids = new Set(parties.map(({ id }) => id));
    return ((await this.#client.state(this.#meeting.name))?.holders ?? []).filter(({ id }) => ids.has(id));
  }
}

function isPartOf(round: Round | null, id: string): round is Round {
  return round?.met.some((party) => party.id === id) === true;
}
