import { EngineUnavailableError } from "../../core/errors.js";
import { ownerText } from "../../core/inspect.js";

/** Plain data about a vote, for whoever reads the error. */
export type VoteReport = { readonly member: string; readonly vote: string; readonly ms: number };

/** What of a vote is reported. */
type ReportedVote = { readonly member: { readonly name: string }; readonly ms: number } & (
  | { readonly answer: unknown }
  | { readonly failure: unknown }
);

/** No quorum gave the same answer. `votes` has each member's; what may have been taken is given back. */
export class QuorumNotReached extends Error {
  readonly votes: readonly VoteReport[];

  constructor(needed: number, members: number, votes: readonly ReportedVote[], why = "quorum not reached") {
    const reports = votes.map(reportOf);
    const texts = reports.map(
      ({ member, vote, ms }) => `${member} ${vote} ${vote.startsWith("timed out") ? "after " : ""}${ms} ms`,
    );
    super(`${why} (${needed} of ${members} needed): ${texts.join(", ")}`);
    this.name = "QuorumNotReached";
    this.votes = reports;
  }
}

/** The member's time limit passed. What it was asked may still happen. */
export class TimedOut extends Error {
  constructor() {
    super("timed out");
  }
}

/** Why a member gave no answer, in a few words. */
export function reasonOf(failure: unknown): string {
  // Its advice is for whoever uses that store alone.
  const root = failure instanceof EngineUnavailableError ? failure.cause : failure;
  return root instanceof Error ? root.message.replace(/\.$/, "") : String(root);
}

function reportOf(vote: ReportedVote): VoteReport {
  return { member: vote.member.name, vote: textOf(vote), ms: Math.round(vote.ms) };
}

function textOf(vote: ReportedVote): string {
  if ("failure" in vote) {
    if (vote.failure instanceof TimedOut) return "timed out";
    return `failed (${reasonOf(vote.failure)})`;
  }
  const { answer } = vote;
  // What it listed is no business of an error.
  if (Array.isArray(answer)) return "answered";
  if (typeof answer !== "object" || answer === null || !("kind" in answer)) return String(answer);
  if (answer.kind === "granted") return "yes";
  if (answer.kind === "busy" && "holder" in answer) return `busy (held by ${ownerText(answer.holder as never)})`;
  if (answer.kind === "mismatch" && "capacity" in answer) return `has capacity ${String(answer.capacity)}`;
  return String(answer.kind);
}
