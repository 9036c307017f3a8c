// Beyond the fixed set of files: every verb is a question to all members.
import type { Clock } from "../../core/clock.js";
import type { Engine, RenewAnswer } from "../../core/engine.js";
import { TimedOut } from "./errors.js";
import type { Member } from "./member.js";

/** What one member answered, or why it did not, and after how long. */
export type Vote<T> = { readonly member: Member; readonly ms: number } & (
  | { readonly answer: T }
  | { readonly failure: unknown }
);

export type Poll<T, Result> = {
  /** As soon as the votes so far decide. */
  readonly decided: Promise<Result>;
  /** Every vote, at the latest when the limit has passed. Never rejects. */
  readonly all: Promise<readonly Vote<T>[]>;
};

/** Who is asked, and how long each of them may take. */
export type Asked = { readonly members: readonly Member[]; readonly limitMs: number };

export type Question<T, Result> = {
  /** Runs to its end, also when the limit has passed: what it notes then still counts. */
  readonly ask: (engine: Engine, member: Member) => Promise<T>;
  /** Called with each answer in time, also with those that come after the decision. */
  readonly onAnswer?: (vote: Vote<T>) => void;
  /** Called after each vote with those so far until it decides; undefined while it is open. With none left it must decide or throw. */
  readonly decide: (votes: readonly Vote<T>[], open: number) => Result | undefined;
};

/** Ask all members at the same time. One timer for all: a hung member costs its limit and no more (`pitfalls.md` 18, 39). */
export function poll<T, Result>(
  clock: Clock,
  { members, limitMs }: Asked,
  { ask, onAnswer, decide }: Question<T, Result>,
): Poll<T, Result> {
  const startedAt = clock.now();
  const votes: Vote<T>[] = [];
  const waiting = new Set(members);
  let resolveAll: (votes: readonly Vote<T>[]) => void = () => {};
  const all = new Promise<readonly Vote<T>[]>((resolve) => (resolveAll = resolve));
  const decided = new Promise<Result>((resolve, reject) => {
    let undecided = true;
    const tryToDecide = (): void => {
      try {
        const result = decide(votes, waiting.size);
        if (result === undefined) return;
        resolve(result);
      } catch (error) {
        reject(error);
      }
      undecided = false;
    };
    const voted = (): void => {
      if (undecided) tryToDecide();
      if (waiting.size > 0) return;
      clock.cancel(timer);
      resolveAll(votes);
    };
    const fail = (member: Member, failure: unknown): void => {
      votes.push({ member, ms: clock.now() - startedAt, failure });
      member.noteOutcome(failure);
    };
    const timeOut = (): void => {
      for (const member of waiting) {
        member.noteOverdue();
        fail(member, new TimedOut());
      }
      waiting.clear();
      voted();
    };
    // One more turn of the event loop: where the process stood still, its timers come before the answers that arrived meanwhile.
    let timer = clock.after(limitMs, () => (timer = clock.after(0, timeOut)));
    for (const member of members) {
      member.ask(ask).then(
        (answer) => {
          if (!waiting.delete(member)) return member.noteLateAnswer();
          const vote = { member, ms: clock.now() - startedAt, answer };
          votes.push(vote);
          member.noteOutcome(null);
          onAnswer?.(vote);
          return voted();
        },
        (failure: unknown) => {
          if (!waiting.delete(member)) return member.noteLateAnswer();
          fail(member, failure);
          return voted();
        },
      );
    }
    if (members.length === 0) voted();
  });
  // Whoever needs only the votes does not read the decision.
  decided.catch(() => {});
  return { decided, all };
}

/** The answers among the votes. */
export function answersOf<T>(votes: readonly Vote<T>[]): readonly T[] {
  return votes.flatMap((vote) => ("answer" in vote ? [vote.answer] : []));
}

/** What stands for an answer that a member's engine left out. */
export function missingAnswer(): RenewAnswer {
  return { kind: "unknown", cause: new Error("the engine left an answer out") };
}
