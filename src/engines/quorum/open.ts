import type { Clock } from "../../core/clock.js";
import type { Engine, EngineEvent } from "../../core/engine.js";
import { EngineUnavailableError, isRefusal } from "../../core/errors.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { Admission } from "./admit.js";
import { QuorumEngine } from "./engine.js";
import { QuorumNotReached, reasonOf } from "./errors.js";
import { Member } from "./member.js";
import { Members } from "./members.js";
import { checkMembers, checkOptions, type QuorumMember, type QuorumOptions } from "./options.js";
import { Turns } from "./turns.js";
import type { Vote } from "./vote.js";

/**
 * Several independent stores that decide together: N Redis servers make Redlock, N databases or any mix work too. Engines
 * that are handed in stay yours to dispose; those that the quorum opens are closed with it.
 *
 * ```ts
 * const engine = await quorumEngine([await redisEngine(a), await redisEngine(b), await redisEngine(c)]);
 * const locks = await connect(engine);
 * ```
 *
 * It opens when a majority of the members can be reached; the others are tried again in the background.
 */
export async function quorumEngine(members: readonly QuorumMember[], options: QuorumOptions = {}): Promise<Engine> {
  const settings = checkOptions(options);
  const named = checkMembers(members);
  const { clock, chance, memberTimeoutMs, restartGuardMs } = settings;
  const listeners = new Listeners();
  const emit = (event: EngineEvent): void => listeners.tell(event);
  const warn = (message: string): void => emit({ kind: "warning", message });
  Admission.checkCount(named.length, warn);
  const admission = new Admission(restartGuardMs, warn);
  const admit = (member: Member, engine: Engine): Promise<void> => admission.admit(member, engine);
  const aboutTurn = (event: EngineEvent): boolean => turns.handle(event);
  const wentAway = (member: Member): void => turns.memberWentAway(member);
  const all = named.map((one, n) => new Member(n, one, { clock, chance, admit, emit, aboutTurn, wentAway }));
  const quorum = new Members(all, clock, memberTimeoutMs);
  const turns = new Turns(quorum, settings, emit);
  const engine = new QuorumEngine(quorum, settings, listeners, turns);
  try {
    await openMajority(quorum, clock, warn);
  } catch (error) {
    await engine[Symbol.asyncDispose]();
    throw error;
  }
  return engine;
}

async function openMajority(members: Members, clock: Clock, warn: (message: string) => void): Promise<void> {
  const startedAt = clock.now();
  const votes: Vote<unknown>[] = [];
  const away: { readonly member: Member; readonly failure: unknown }[] = [];
  await Promise.all(
    members.all.map(async (member) => {
      try {
        await member.open();
        votes.push({ member, ms: clock.now() - startedAt, answer: "open" });
      } catch (failure) {
        // A wrong address, password or server is an error at once; one that is away may come back.
        if (isRefusal(failure)) throw failure;
        away.push({ member, failure });
        votes.push({ member, ms: clock.now() - startedAt, failure });
      }
    }),
  );
  const { majority, count } = members;
  if (count - away.length < majority) {
    throw new EngineUnavailableError("quorum", "connecting", new QuorumNotReached(majority, count, votes));
  }
  for (const { member, failure } of away) {
    warn(`quorum member ${member.name} is away: ${reasonOf(failure)}`);
    member.reopen(failure);
  }
}
