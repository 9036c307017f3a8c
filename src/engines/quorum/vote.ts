import type { Clock } from "../../core/clock.js";
import type { Engine } from "../../core/engine.js";
import { EngineUnavailableError } from "../../core/errors.js";
import { ownerText } from "../../core/inspect.js";
import type { Member } from "./member.js";

/** What one member said, or why it said nothing, and after how long. */
export type Vote<T> = { readonly member: Member; readonly ms: number } & (
  | { readonly answer: T }
  | { readonly failure: unknown }
);

/** Plain data about a vote, for whoever reads the error. */
export type VoteReport = { readonly member: string; readonly vote: string; readonly ms: number };

/** No quorum said the same. `votes` tells who said what; what may have been taken is given back. */
export class QuorumNotReached extends Error {
  readonly votes: readonly VoteReport[];

  constructor(needed: number, members: number, votes: readonly Vote<unknown>[], why = "quorum not reached") {
    const reports = votes.map(reportOf);
    const texts = reports.map(
      ({ member, vote, ms }) => `${member} ${vote} ${vote.startsWith("timed out") ? "after " : ""}${ms} ms`,
    );
    super(`${why} (${needed} of ${members} needed): ${texts.join(", ")}`);
    this.name = "QuorumNotReached";
    this.votes = reports;
  }
}

/** The member's limit passed. What it was asked may still happen. */
class TimedOut extends Error {
  constructor() {
    super("timed out");
  }
}

/** Why a member said nothing, in a few words. */
export function reasonOf(failure: unknown): string {
  // Its advice is for whoever uses that store alone.
  const root = failure instanceof EngineUnavailableError ? failure.cause : failure;
  return root instanceof Error ? root.message.replace(/\.$/, "") : String(root);
}

function reportOf(vote: Vote<unknown>): VoteReport {
  return { member: vote.member.name, vote: wordOf(vote), ms: Math.round(vote.ms) };
}

function wordOf(vote: Vote<unknown>): string {
  if ("failure" in vote) {
    if (vote.failure instanceof TimedOut) return "timed out";
    return `failed (${reasonOf(vote.failure)})`;
  }
  const { answer } = vote;
  if (typeof answer !== "object" || answer === null || !("kind" in answer)) return String(answer);
  if (answer.kind === "granted") return "yes";
  if (answer.kind === "busy" && "holder" in answer) return `busy (held by ${ownerText(answer.holder as never)})`;
  if (answer.kind === "mismatch" && "capacity" in answer) return `has capacity ${String(answer.capacity)}`;
  return String(answer.kind);
}

export type Poll<T, Result> = {
  /** As soon as the votes so far settle it. */
  readonly decided: Promise<Result>;
  /** Every vote, at the latest when the limit has passed. Never rejects. */
  readonly all: Promise<readonly Vote<T>[]>;
};

export type Question<T, Result> = {
  readonly members: readonly Member[];
  readonly limitMs: number;
  /** Runs to its end, also when the limit has passed: what it notes then still counts. */
  readonly ask: (engine: Engine, member: Member) => Promise<T>;
  /** Told of each answer in time, also of those that come after the decision. */
  readonly heard?: (vote: Vote<T>) => void;
  /** Called after each vote with those so far until it decides; undefined while it is open. With none left it must decide or throw. */
  readonly decide: (votes: readonly Vote<T>[], open: number) => Result | undefined;
};

/** Ask all members at the same time. One timer for all: a hung member costs its limit and no more (`pitfalls.md` 18, 39). */
export function poll<T, Result>(clock: Clock, question: Question<T, Result>): Poll<T, Result> {
  const { members, limitMs, ask, heard, decide } = question;
  const startedAt = clock.now();
  const votes: Vote<T>[] = [];
  const waiting = new Set(members);
  let resolveAll: (votes: readonly Vote<T>[]) => void = () => {};
  const all = new Promise<readonly Vote<T>[]>((resolve) => (resolveAll = resolve));
  const decided = new Promise<Result>((resolve, reject) => {
    let open = true;
    const judge = (): void => {
      try {
        const result = decide(votes, waiting.size);
        if (result === undefined) return;
        resolve(result);
      } catch (error) {
        reject(error);
      }
      open = false;
    };
    const settle = (): void => {
      if (open) judge();
      if (waiting.size > 0) return;
      clock.cancel(timer);
      resolveAll(votes);
    };
    const fail = (member: Member, failure: unknown): void => {
      votes.push({ member, ms: clock.now() - startedAt, failure });
      member.heard(failure);
    };
    const timer = clock.after(limitMs, () => {
      for (const member of waiting) {
        member.late();
        fail(member, new TimedOut());
      }
      waiting.clear();
      settle();
    });
    for (const member of members) {
      member.ask(ask).then(
        (answer) => {
          if (!waiting.delete(member)) return member.lateAnswer();
          const vote = { member, ms: clock.now() - startedAt, answer };
          votes.push(vote);
          member.heard(null);
          heard?.(vote);
          return settle();
        },
        (failure: unknown) => {
          if (!waiting.delete(member)) return member.lateAnswer();
          fail(member, failure);
          return settle();
        },
      );
    }
    if (members.length === 0) settle();
  });
  // Whoever needs only the votes does not look at the outcome.
  decided.catch(() => {});
  return { decided, all };
}

/** The answers among the votes. */
export function answersOf<T>(votes: readonly Vote<T>[]): readonly T[] {
  return votes.flatMap((vote) => ("answer" in vote ? [vote.answer] : []));
}
