// Beyond the fixed set of files: only a quorum knows by how many members a hold is kept.
import type { Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import type { ClaimRecord } from "./claim-record.js";
import type { Members } from "./members.js";

/** Tells of holds that stand on a bare majority: one of its members that forgets or jumps ahead frees what is held. */
export class Standings {
  readonly #members: Members;
  readonly #clock: Clock;
  readonly #emit: (event: EngineEvent) => void;

  constructor(members: Members, clock: Clock, emit: (event: EngineEvent) => void) {
    this.#members = members;
    this.#clock = clock;
    this.#emit = emit;
  }

  /** All votes are in, of its grant or of a heartbeat. */
  note(record: ClaimRecord, votes: number): void {
    const needed = this.#members.quorum(record.claim.capacity);
    if (record.released || record.token === 0) return;
    // Where all are needed there is nothing to spare, ever.
    if (votes > needed || needed === this.#members.count) return this.ended(record, votes);
    record.bareSince ??= this.#clock.now();
    this.#tell(record, votes, record.bareSince, false);
  }

  /** More members have it now, or it is given back. */
  ended(record: ClaimRecord, votes: number): void {
    const since = record.bareSince;
    if (since === null) return;
    record.bareSince = null;
    this.#tell(record, votes, since, true);
  }

  #tell({ claim: { name, id } }: ClaimRecord, votes: number, since: number, over: boolean): void {
    const forMs = this.#clock.now() - since;
    this.#emit({ kind: "bare-majority", name, id, votes, members: this.#members.count, forMs, over });
  }
}
