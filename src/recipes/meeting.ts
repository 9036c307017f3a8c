import { NotAcquired } from "../core/cancellation.js";
import { checkCount, checkKnown } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { WaitTimeoutError } from "../core/errors.js";
import { Hold } from "../core/hold.js";
import { type HolderState, type Owner, ownerText } from "../core/inspect.js";
import { type AcquireOptions, checkTerms, type Terms } from "../core/options.js";
import { acquire } from "../core/wait.js";
import { type Seen, SharedValue } from "./cell.js";
import { waitUntil } from "./wait-until.js";

/** `leaseMs`: how long the others wait for a party that died. */
export type MeetOptions = Pick<AcquireOptions, (typeof OPTIONS)[number]>;

const OPTIONS = ["waitMs", "signal", "leaseMs", "label"] as const;

/** All who met stand in one small value. */
const PARTIES_MAX = 256;

/** A party: its claim's id, and who it is. */
export type Party = Pick<HolderState, "id" | "owner">;

/** `round`: what those who come now wait for. `met`: who made up the last full round; `left`: the ids of who went since. */
export type Round = { readonly round: string; readonly met: readonly Party[]; readonly left: readonly string[] };

/**
 * Where a number of parties wait for each other. Each party is a claim, so that one which dies is gone with its lease;
 * who met is decided once, by one write, so that all see the same.
 */
export class Meeting {
  readonly name: string;
  readonly parties: number;
  readonly value: SharedValue<Round>;
  readonly #client: Client;

  constructor(client: Client, kind: string, name: string, parties: number) {
    this.name = name;
    this.parties = checkCount("parties", parties, 1, PARTIES_MAX);
    this.value = new SharedValue(client, kind, name);
    this.#client = client;
  }

  terms(options: MeetOptions): Terms {
    checkKnown(options, OPTIONS);
    return checkTerms(options, { leaseMs: this.#client.settings.leaseMs, waitMs: undefined });
  }

  /** Come, and wait until all parties are there. Answers this party's claim, which it still holds. */
  async meet(terms: Terms): Promise<Hold> {
    const { clock } = this.#client;
    const startedAt = clock.now();
    const came = new Map<string, Owner>();
    for (;;) {
      const { waitMs } = terms;
      const left = {
        ...terms,
        waitMs: waitMs === undefined ? undefined : Math.max(0, waitMs + startedAt - clock.now()),
      };
      const current = await waitUntil(this.#client, left, { name: this.name, check: () => this.#current() });
      if (current instanceof NotAcquired)
        throw new WaitTimeoutError(this.name, current.waitedMs, "the store did not answer");
      const { round } = current;
      // More than the parties do not fit: whoever is one too many, or early for the next round, waits at the door.
      const ask = { name: this.name, units: 1, capacity: this.parties, data: round, kind: "barrier" } as const;
      const taken = await acquire(this.#client, ask, left);
      if (taken instanceof NotAcquired) {
        const standing = `all ${this.parties} places are taken, and their parties have not gone yet`;
        throw new WaitTimeoutError(this.name, clock.now() - startedAt, standing);
      }
      const hold = new Hold(taken);
      try {
        const met = await this.#allHere(hold, round, left, came);
        if (met === "met") return hold;
        if (met instanceof NotAcquired) throw await this.#timeout(clock.now() - startedAt, round, came);
      } catch (error) {
        // What stopped it is the error to see; a claim that could not be given back ends with its lease.
        await hold.release().catch(() => {});
        throw error;
      }
      // A round went by without this claim: it came late, and comes again for the next. If it cannot be given back it ends
      // with its lease.
      await hold.release().catch(() => {});
    }
  }

  /** Who is there now, in this round. */
  async present(round: string): Promise<readonly HolderState[]> {
    return ((await this.#client.state(this.name))?.holders ?? []).filter((holder) => holder.data === round);
  }

  /** When nobody is there any more, nothing of the meeting is kept. */
  async tidy(): Promise<void> {
    const { version, value } = await this.value.read();
    if (value === null || (await this.#client.state(this.name)) !== undefined) return;
    await this.value.write(version, null);
  }

  async #current(): Promise<Round> {
    const begin = (): Round => ({ round: this.#client.chance.id(), met: [], left: [] });
    const { value } = await this.value.update((known) => (known === null ? begin() : undefined));
    if (value === null) throw new Error("invariant: a round was begun and is not there");
    return value;
  }

  #allHere(hold: Hold, round: string, terms: Terms, came: Map<string, Owner>): Promise<"met" | "late" | NotAcquired> {
    return waitUntil(this.#client, terms, {
      name: this.name,
      watch: (changed) => {
        hold.signal.addEventListener("abort", changed);
        const unwatch = this.value.watch(changed);
        return () => {
          hold.signal.removeEventListener("abort", changed);
          unwatch();
        };
      },
      check: async () => {
        hold.throwIfLost();
        const seen = await this.value.read();
        const verdict = judge(seen, round, hold.id);
        if (verdict !== null) return verdict;
        const present = await this.present(round);
        for (const { id, owner } of present) came.set(id, owner);
        if (present.length < this.parties) return null;
        const met = present.map(({ id, owner }) => ({ id, owner }));
        // Whoever writes first decides; all others read what was decided.
        const next = { round: this.#client.chance.id(), met, left: [] };
        return judge((await this.value.write(seen.version, next)).seen, round, hold.id);
      },
    });
  }

  /** Nobody knows who never came; but who came and died is known. */
  async #timeout(waitedMs: number, round: string, came: ReadonlyMap<string, Owner>): Promise<WaitTimeoutError> {
    const here = new Set((await this.present(round)).map(({ id }) => id));
    const missing = [...came].flatMap(([id, owner]) => (here.has(id) ? [] : [owner]));
    const present = [...came].flatMap(([id, owner]) => (here.has(id) ? [ownerText(owner)] : []));
    const died = missing.length === 0 ? "" : `; ${missing.map(ownerText).join(", ")} came and died`;
    const standing = `${here.size} of ${this.parties} parties are here (${present.join(", ")})${died}`;
    return new WaitTimeoutError(this.name, waitedMs, standing, missing);
  }
}

function judge({ value }: Seen<Round>, round: string, id: string): "met" | "late" | null {
  if (value?.met.some((party) => party.id === id)) return "met";
  return value?.round === round ? null : "late";
}
