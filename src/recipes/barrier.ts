import type { Client } from "../core/client.js";
import { Meeting, type MeetOptions } from "./meeting.js";

/**
 * A number of parties wait until all of them are there, then go on together; and again, as often as they like. A party
 * that dies while it waits is gone with its lease.
 */
export class Barrier {
  readonly #meeting: Meeting;

  /** @internal */
  constructor(client: Client, name: string, parties: number) {
    this.#meeting = new Meeting(client, "barrier", name, parties);
  }

  get name(): string {
    return this.#meeting.name;
  }

  get parties(): number {
    return this.#meeting.parties;
  }

  /** Resolves when all parties wait here. Throws `WaitTimeoutError`, which says who came and died, when `waitMs` is over. */
  async wait(options: MeetOptions = {}): Promise<void> {
    const hold = await this.#meeting.meet(this.#meeting.terms(options));
    // The decision stands: whatever becomes of this claim now, its party has met the others.
    await hold.release().catch(() => {});
    await this.#meeting.tidy().catch(() => {});
  }
}
