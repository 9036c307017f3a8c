import type { Busy, ClaimAnswer, ClaimRequest } from "../../core/engine.js";
import { ClaimRecord, type ClaimRecords } from "./claim-record.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";
import type { Releases } from "./release.js";
import type { Rounds } from "./round.js";
import type { Turns } from "./turns.js";

/** A claim asks for the votes and for its turn at once. What does not come to a grant or to a place is given back everywhere. */
export class Claims {
  readonly #members: Members;
  readonly #settings: Settings;
  readonly #records: ClaimRecords;
  readonly #releases: Releases;
  readonly #rounds: Rounds;
  readonly #turns: Turns;

  constructor(
    members: Members,
    settings: Settings,
    records: ClaimRecords,
    releases: Releases,
    rounds: Rounds,
    turns: Turns,
  ) {
    this.#members = members;
    this.#settings = settings;
    this.#records = records;
    this.#releases = releases;
    this.#rounds = rounds;
    this.#turns = turns;
  }

  async claim(request: ClaimRequest): Promise<ClaimAnswer> {
    // Its round has failed, and it is being given back.
    if (this.#releases.has(request)) return { kind: "gone" };
    const record = this.#records.get(request) ?? new ClaimRecord(request);
    this.#records.set(record);
    record.suggestion = 0;
    record.turn ??= this.#turns.of(request);
    if (record.turn !== null && request.wait) this.#turns.expect(record, record.turn);
    try {
      return await this.#ask(record, request);
    } catch (error) {
      // The outcome is unknown, and the same claim may be sent again: it must find tombstones.
      this.#giveBack(record, false);
      throw error;
    }
  }

  async #ask(record: ClaimRecord, request: ClaimRequest): Promise<ClaimAnswer> {
    const { turn } = record;
    const { name, wait } = request;
    if (turn?.state === "unasked" && wait && this.#turns.isContended(name)) {
      await this.#turns.ask(turn, request, this.#rounds.limitMs(request));
      if (turn.isQueued) return this.#turns.queued(record, turn);
      this.#turns.noteContended(name, false);
    }
    const outcome = await this.#rounds.run(record, request);
    if (outcome.kind === "granted") {
      this.#turns.leave(record);
      return outcome;
    }
    if (turn?.state === "queued") this.#turns.noteContended(name, true);
    const stands = outcome.kind === "behind" ? outcome.clean : outcome.kind === "busy" && turn?.state === "granted";
    // What it has of the votes it keeps for a moment: whoever let go of the lock may not have told all members yet.
    if (turn !== null && wait && stands) {
      if (turn.state === "granted") record.votedAt = this.#settings.clock.now();
      return this.#turns.queued(record, turn);
    }
    this.#giveBack(record, true);
    const busy: Busy = { kind: "busy", ...(turn?.holder === undefined ? {} : { holder: turn.holder }) };
    return outcome.kind === "behind" ? busy : outcome;
  }

  /** `refused`: the members answered, and the claim will not be sent again. */
  #giveBack(record: ClaimRecord, refused: boolean): void {
    // Claimed again although it was granted: what is held is not given back by a second claim.
    if (record.token > 0 || record.released) return;
    this.#turns.leave(record);
    this.#records.remove(record.claim);
    const order = { ref: record.claim, needed: this.#members.quorum(record.claim.capacity), record };
    // Nobody waits for these: members that do not answer are sent the release again until the lease has ended.
    if (refused) this.#releases.start({ ...order, claimedOnce: true }).catch(() => {});
    else this.#releases.abandon({ ...order, claimedOnce: false });
  }
}
