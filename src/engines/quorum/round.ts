// Beyond the fixed set of files: whoever claims and whoever has waited for its turn vote alike.
import type { ClaimAnswer, ClaimRequest, Engine, Granted } from "../../core/engine.js";
import { isRefusal } from "../../core/errors.js";
import type { ClaimRecord } from "./claim-record.js";
import { QuorumNotReached } from "./errors.js";
import { areEnough, fenceOf, isYes, leftOf, type Tokens, type Yes } from "./fence.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";
import { quorumSize } from "./size.js";
import type { Standings } from "./standing.js";
import { missingAnswer, type Vote } from "./vote.js";

/** The turn is not there yet: others stand ahead. */
export type Behind = { readonly kind: "behind"; readonly clean: boolean };
type No = Exclude<ClaimAnswer, { kind: "granted" }>;

/** One round: note the time, ask all members at once, count. */
export class Rounds {
  readonly #members: Members;
  readonly #settings: Settings;
  readonly #tokens: Tokens;
  readonly #standings: Standings;

  constructor(members: Members, settings: Settings, tokens: Tokens, standings: Standings) {
    this.#standings = standings;
    this.#members = members;
    this.#settings = settings;
    this.#tokens = tokens;
  }

  /** The longest that a member may take for its vote. */
  limitMs({ leaseMs }: ClaimRequest): number {
    return Math.min(this.#members.timeoutMs, leaseMs / 4);
  }

  /**
   * Votes, and the turn with them unless it was asked for before. Rejects when the outcome is unknown. Members that said yes
   * in an earlier round of a claim that waits only have to say that they still do.
   */
  async run(record: ClaimRecord, request: ClaimRequest): Promise<Granted | Behind | No> {
    // Whoever left while it waited for its turn has told all members where anything of it was: nothing may follow that.
    if (record.released) return { kind: "gone" };
    const { clock, restartGuardMs, spareVotes } = this.#settings;
    const members = this.#members;
    const startedAt = clock.now();
    const needed = Math.min(members.count, members.quorum(request.capacity) + spareVotes);
    const limitMs = this.limitMs(request);
    const { turn } = record;
    const asked = turn?.state === "unasked" ? turn : null;
    record.suggestion ||= this.#tokens.suggest(request.tokenAtLeast);
    const toMembers: ClaimRequest = { ...request, wait: false, tokenAtLeast: record.suggestion };
    const { decided, all } = members.ask<ClaimAnswer, No | Behind | readonly Yes[]>({
      members: asked === null ? members.all : members.startingWith(asked.member),
      limitMs,
      ask(engine, member) {
        const { index } = member;
        const again = record.waiting && record.at(index).answered === "granted";
        let vote = again ? stillGranted(engine, record, index) : record.send(index, engine, toMembers);
        if (restartGuardMs > 0) vote = failIfRestarted(engine, vote, restartGuardMs);
        return asked?.member === member ? withTurn(vote, asked.ask(engine, request)) : vote;
      },
      // Those that came after the decision, too: all of them were asked before it.
      onAnswer(vote) {
        if (isYes(vote)) record.at(vote.member.index).kept = true;
      },
      decide(votes, open) {
        if (asked?.isQueued) return behind(votes, members.count);
        const outcome = outcomeOf(votes, members.count, needed);
        // Sent again after it was granted: those that have its token may be among the others.
        if (Array.isArray(outcome) && record.token > 0 && open > 0 && !areEnough(record, outcome, needed))
          return undefined;
        if (asked === null || outcome === undefined) return outcome;
        if (!Array.isArray(outcome) && !request.wait) return outcome;
        // Without its word nobody knows who stands ahead. It may take as long as any member.
        if (!votes.some(({ member }) => member === asked.member)) return undefined;
        // Whoever does not wait overtakes nobody either.
        return Array.isArray(outcome) && asked.refusal !== null ? asked.refusal : outcome;
      },
    });
    const outcome = await decided;
    if ("kind" in outcome) return outcome;
    const { token, yes } = await this.#tokens.agree(record, outcome, needed, limitMs);
    const leftMs = leftOf(yes, needed, this.#settings);
    if (clock.now() - startedAt >= leftMs) throw new Error("the votes took longer than the lease");
    // Sent twice, and the other one has failed meanwhile: all of it is being given back.
    if (record.released) return { kind: "gone" };
    // It had ended, and was granted anew under its id: what became of it before does not count.
    if (token > record.token) record.claim = request;
    this.#tokens.accept(record, token);
    void all.then((votes) => this.#standings.note(record, votes.filter(isYes).length));
    return { kind: "granted", leftMs, ...fenceOf(yes, token) };
  }
}

/** All votes are in, and nothing stands but the place in the queue; or something has to be given back. */
function behind(votes: readonly Vote<ClaimAnswer>[], members: number): Behind | undefined {
  if (votes.length < members) return undefined;
  return { kind: "behind", clean: votes.every((vote) => "answer" in vote && vote.answer.kind === "busy") };
}

/** Settles with the vote; a turn that could not be asked for takes nothing away from it. */
function withTurn(vote: Promise<ClaimAnswer>, turn: Promise<void>): Promise<ClaimAnswer> {
  return Promise.all([vote, turn]).then(([answer]) => answer);
}

async function stillGranted(engine: Engine, record: ClaimRecord, index: number): Promise<ClaimAnswer> {
  const { name, id } = record.claim;
  const [answer = missingAnswer()] = await engine.renew([{ name, id }]);
  if (answer.kind === "unknown") throw answer.cause;
  record.note(index, answer);
  return answer;
}

/**
 * Enough yes-votes, or the answer once there can be no more of them. Busy counts as busy only if those that answered could
 * have made a quorum: otherwise the failures decided, and the outcome is unknown (`pitfalls.md` 19).
 */
function outcomeOf(
  votes: readonly Vote<ClaimAnswer>[],
  members: number,
  needed: number,
): No | readonly Yes[] | undefined {
  let grants = 0;
  for (const vote of votes) if (isYes(vote)) grants += 1;
  const spare = members - needed;
  // Most often nothing is decided yet, and nobody needs the lists.
  if (grants < needed && votes.length - grants <= spare) return undefined;
  const yes: Yes[] = [];
  const noes: No[] = [];
  const failures: unknown[] = [];
  for (const vote of votes) {
    if ("failure" in vote) failures.push(vote.failure);
    else if (vote.answer.kind === "granted") yes.push({ member: vote.member, answer: vote.answer });
    else noes.push(vote.answer);
  }
  if (yes.length >= needed) return yes;
  if (failures.length > spare) {
    // An unknown outcome is no hurry: the error has every vote.
    if (votes.length < members) return undefined;
    // Refused by so many that asking again is of no use.
    const refusals = failures.filter(isRefusal);
    throw refusals.length > spare ? refusals[0] : new QuorumNotReached(needed, members, votes);
  }
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
