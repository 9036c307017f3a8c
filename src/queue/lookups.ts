import type { LocalClaim } from "./local-claims.js";
import type { Queue, QueueEntry } from "./queue.js";

/** A queue as one reading showed it, with the own entry. */
export type Seen<Entry extends QueueEntry> = { readonly queue: Queue<Entry>; readonly own: Entry | undefined };

/** What a store does for a claim that waits. */
export interface QueueStore<Claim, Entry extends QueueEntry, Found extends Seen<Entry>> {
  /** The own entry is read in the same step as those before it (pitfall 1). */
  list(claim: Claim): Promise<Found>;
  /** Watches what the claim waits for; any change asks for another lookup. A newer queue, if it changed before it was watched. */
  watch(claim: Claim, found: Found): Promise<Found | null>;
  /** It is the claim's turn. */
  grant(claim: Claim, found: Found): void;
  /** Its entry is gone. */
  lose(claim: Claim): void;
}

/** Until it is the claim's turn, or a watch is set that will tell. Null: the claim is over. */
export async function awaitTurn<Claim extends LocalClaim, Entry extends QueueEntry, Found extends Seen<Entry>>(
  store: QueueStore<Claim, Entry, Found>,
  claim: Claim,
  first?: Found,
): Promise<Found | null> {
  for (let found = first ?? (await store.list(claim)); ; ) {
    if (claim.over) return null;
    if (found.own === undefined) {
      store.lose(claim);
      return null;
    }
    if (claim.granted || found.queue.holds(found.own)) {
      store.grant(claim, found);
      return found;
    }
    const newer = await store.watch(claim, found);
    if (newer === null) return found;
    found = newer;
  }
}

/** One lookup of a claim at a time. What changes while one is under way asks for one more, however often it changes. */
export class Lookups<Claim extends LocalClaim> {
  readonly #lookUp: (claim: Claim) => Promise<void>;
  /** Claims that are looked up, and whether to do it once more. */
  readonly #underWay = new Map<Claim, boolean>();

  /** `lookUp` never rejects. */
  constructor(lookUp: (claim: Claim) => Promise<void>) {
    this.#lookUp = lookUp;
  }

  async request(claim: Claim): Promise<void> {
    if (claim.over || claim.granted) return;
    if (this.#underWay.has(claim)) return void this.#underWay.set(claim, true);
    do {
      this.#underWay.set(claim, false);
      await this.#lookUp(claim);
    } while (this.#underWay.get(claim));
    this.#underWay.delete(claim);
  }
}
