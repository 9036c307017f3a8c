import type { Engine, EngineEvent } from "../../core/engine.js";
import { EngineUnavailableError, isRefusal } from "../../core/errors.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { Admission } from "./admit.js";
import { ClaimedMap } from "./claim-record.js";
import { QuorumEngine } from "./engine.js";
import { Member } from "./member.js";
import { checkMembers, checkOptions, type QuorumMember, type QuorumOptions } from "./options.js";
import type { Parts } from "./parts.js";
import { Leaving } from "./release.js";
import { quorumSize } from "./size.js";
import { QuorumNotReached, reasonOf, type Vote } from "./vote.js";

export { OPTIONS as QUORUM_OPTIONS, type QuorumMember, type QuorumOptions } from "./options.js";
export { quorumSize } from "./size.js";
export { parseRedlockUrl } from "./url.js";
export { QuorumNotReached, type VoteReport } from "./vote.js";

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
  const { clock, chance } = settings;
  const events = new Listeners();
  const tell = (event: EngineEvent): void => events.tell(event);
  const warn = (message: string): void => tell({ kind: "warning", message });
  Admission.count(named.length, warn);
  const admission = new Admission(settings.restartGuardMs, warn);
  const admit = (member: Member, engine: Engine): Promise<void> => admission.admit(member, engine);
  const all = named.map((one, n) => new Member(n, one, { clock, chance, admit, tell }));
  const parts: Parts = {
    members: all,
    settings,
    claims: new ClaimedMap(),
    leaving: new Leaving(settings),
    highestToken: 0,
  };
  const engine = new QuorumEngine(parts, events);
  try {
    await openMost(all, clock.now.bind(clock), warn);
  } catch (error) {
    await engine[Symbol.asyncDispose]();
    throw error;
  }
  return engine;
}

async function openMost(members: readonly Member[], now: () => number, warn: (message: string) => void): Promise<void> {
  const startedAt = now();
  const votes: Vote<unknown>[] = [];
  const away: { readonly member: Member; readonly failure: unknown }[] = [];
  await Promise.all(
    members.map(async (member) => {
      try {
        await member.open();
        votes.push({ member, ms: now() - startedAt, answer: "open" });
      } catch (failure) {
        // A wrong address, password or server is told at once; one that is away may come back.
        if (isRefusal(failure)) throw failure;
        away.push({ member, failure });
        votes.push({ member, ms: now() - startedAt, failure });
      }
    }),
  );
  const majority = quorumSize(members.length, 1);
  if (members.length - away.length < majority) {
    throw new EngineUnavailableError("quorum", "connecting", new QuorumNotReached(majority, members.length, votes));
  }
  for (const { member, failure } of away) {
    warn(`quorum member ${member.name} is away: ${reasonOf(failure)}`);
    member.reopen(failure);
  }
}
