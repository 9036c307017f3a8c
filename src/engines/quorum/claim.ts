import type { ClaimAnswer, ClaimRequest, Engine } from "../../core/engine.js";
import { isRefusal } from "../../core/errors.js";
import { ClaimRecord, type ClaimRecords } from "./claim-record.js";
import { QuorumNotReached } from "./errors.js";
import { fenceOf, leftOf, type Tokens, type Yes, yesOf } from "./fence.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";
import type { Releases } from "./release.js";
import { quorumSize } from "./size.js";
import type { Vote } from "./vote.js";

/** One round: note the time, ask all members at once, count. What does not come to a grant is given back everywhere. */
export class Claims {
  readonly #members: Members;
  readonly #settings: Settings;
  readonly #records: ClaimRecords;
  readonly #releases: Releases;
  readonly #tokens: Tokens;

  constructor(members: Members, settings: Settings, records: ClaimRecords, releases: Releases, tokens: Tokens) {
    this.#members = members;
    this.#settings = settings;
    this.#records = records;
    this.#releases = releases;
    this.#tokens = tokens;
  }

  async claim(request: ClaimRequest): Promise<ClaimAnswer> {
    // Its round has failed, and it is being given back.
    if (this.#releases.has(request)) return { kind: "gone" };
    const { clock, restartGuardMs } = this.#settings;
    const startedAt = clock.now();
    const members = this.#members;
    const needed = members.quorum(request.capacity);
    const limitMs = Math.min(members.timeoutMs, request.leaseMs / 4);
    const record = this.#records.get(request) ?? new ClaimRecord(request, members.count);
    this.#records.set(record);
    const toMembers = { ...request, wait: false, tokenAtLeast: this.#tokens.suggest(request.tokenAtLeast) };
    try {
      const { decided } = members.ask<ClaimAnswer, ClaimAnswer | readonly Yes[]>({
        limitMs,
        ask(engine, { index }) {
          const answer = record.send(index, engine, toMembers);
          return restartGuardMs === 0 ? answer : failIfRestarted(engine, answer, restartGuardMs);
        },
        // Those that came after the decision, too: all of them were asked before it.
        onAnswer(vote) {
          if (yesOf(vote).length > 0) record.at(vote.member.index).kept = true;
        },
        decide: (votes) => outcomeOf(votes, members.count, needed),
      });
      const outcome = await decided;
      if ("kind" in outcome) {
        this.#giveBack(record, needed, true);
        return outcome;
      }
      const { token, yes } = await this.#tokens.agree(record, outcome, needed, limitMs);
      const leftMs = leftOf(yes, needed, this.#settings);
      if (clock.now() - startedAt >= leftMs) throw new Error("the votes took longer than the lease");
      // It had ended, and was granted anew under its id: what became of it before does not count.
      if (token > record.token) record.claim = request;
      this.#tokens.accept(record, token);
      return { kind: "granted", leftMs, ...fenceOf(yes, token) };
    } catch (error) {
      // The outcome is unknown, and the same claim may be sent again: it must find tombstones.
      this.#giveBack(record, needed, false);
      throw error;
    }
  }

  /** `refused`: the members answered, and the claim will not be sent again. */
  #giveBack(record: ClaimRecord, needed: number, refused: boolean): void {
    // Claimed again although it was granted: what is held is not given back by a second claim.
    if (record.token > 0) return;
    this.#records.remove(record.claim);
    // Nobody waits for these: members that do not answer are sent the release again until the lease has ended.
    if (refused) this.#releases.start({ ref: record.claim, needed, record, claimedOnce: true }).catch(() => {});
    else this.#releases.abandon({ ref: record.claim, needed, record, claimedOnce: false });
  }
}

/**
 * Enough yes-votes, or the answer once there can be no more of them. Busy counts as busy only if those that answered could
 * have made a quorum: otherwise the failures decided, and the outcome is unknown (`pitfalls.md` 19).
 */
function outcomeOf(
  votes: readonly Vote<ClaimAnswer>[],
  members: number,
  needed: number,
): ClaimAnswer | readonly Yes[] | undefined {
  const yes: Yes[] = [];
  const noes: Exclude<ClaimAnswer, { kind: "granted" }>[] = [];
  const failures: unknown[] = [];
  for (const vote of votes) {
    if ("failure" in vote) failures.push(vote.failure);
    else if (vote.answer.kind === "granted") yes.push({ member: vote.member, answer: vote.answer });
    else noes.push(vote.answer);
  }
  if (yes.length >= needed) return yes;
  const spare = members - needed;
  if (failures.length > spare) {
    // An unknown outcome is no hurry: the error has every vote.
    if (votes.length < members) return undefined;
    // Refused by so many that asking again is of no use.
    const refusals = failures.filter(isRefusal);
    throw refusals.length > spare ? refusals[0] : new QuorumNotReached(needed, members, votes);
  }
  if (noes.length + failures.length <= spare) return undefined;
  const gone = noes.find(({ kind }) => kind === "gone");
  if (gone !== undefined) return gone;
  // At a few members a claim that comes or goes may have left another capacity; a name in use has it at a majority.
  const mismatches = noes.filter(({ kind }) => kind === "mismatch");
  const majority = quorumSize(members, 1);
  if (mismatches.length >= majority) return mismatches[0];
  const open = members - votes.length;
  if (mismatches.length > 0 && mismatches.length + open >= majority) return undefined;
  const busy = noes.find((no) => no.kind === "busy") ?? { kind: "busy" };
  // Made when it is asked for: by then the votes that came after the decision are among them.
  return { ...busy, why: () => new QuorumNotReached(needed, members, votes) };
}

/** Without what it knew before a restart, a member could grant again what somebody holds (`pitfalls.md` 38). */
async function failIfRestarted(
  engine: Engine,
  claiming: Promise<ClaimAnswer>,
  restartGuardMs: number,
): Promise<ClaimAnswer> {
  const answer = await claiming;
  if (answer.kind !== "granted" || engine.guarantees.survivesRestart || engine.serverInfo === undefined) return answer;
  // Asked after the grant: a restart in between is seen.
  const { upMs } = await engine.serverInfo();
  if (upMs !== undefined && upMs < restartGuardMs)
    throw new Error(`no vote yet: it started ${Math.round(upMs)} ms ago`);
  return answer;
}
