// Beyond the fixed set of files: what is one call in other engines is a vote here.
import type { CapacityAnswer, ClaimRef } from "../../core/engine.js";
import { UnsupportedError } from "../../core/errors.js";
import type { ClaimRecords } from "./claim-record.js";
import { QuorumNotReached } from "./errors.js";
import type { Members } from "./members.js";
import { turnNameOf } from "./turn.js";
import type { Turns } from "./turns.js";
import { answersOf } from "./vote.js";

export type ResizeAnswer = "resized" | "refused" | "gone";

export async function resize(
  members: Members,
  records: ClaimRecords,
  turns: Turns,
  ref: ClaimRef,
  units: number,
): Promise<ResizeAnswer> {
  const record = records.get(ref);
  const turn = record === undefined ? turns.handedOver(ref) : record.turn;
  const needed = members.quorum(record?.claim.capacity ?? 1);
  // A member with a higher token counts while nobody else fits in. To whoever comes in later it would answer a floor that shuts
  // this holder out, so it keeps the units as they are, and lets nobody in.
  const asked = members.all.filter(({ index }) => record?.mayBeHigherAt(index) !== true);
  if (asked.length < needed)
    throw new QuorumNotReached(needed, members.count, [], "too few members have the token of this hold");
  // The others behind it may fit now. What comes of this decides nothing.
  if (turn?.mayStand) turn.member.ask((engine) => engine.resize(turn.ref, units)).catch(() => {});
  const { decided, all } = members.ask<ResizeAnswer, ResizeAnswer>({
    members: asked,
    ask: (engine) => engine.resize(ref, units),
    decide: (votes, open) => {
      const count = (kind: ResizeAnswer): number => answersOf(votes).filter((answer) => answer === kind).length;
      if (count("resized") >= needed) return "resized";
      for (const no of ["refused", "gone"] as const) if (count(no) > members.count - needed) return no;
      if (open > 0) return undefined;
      throw new QuorumNotReached(needed, members.count, votes);
    },
  });
  const answer = await decided;
  if (answer === "resized" && record !== undefined) {
    record.claim = { ...record.claim, units };
    // A member that was not asked or did not answer is resized with the next heartbeat.
    const heard = new Set((await all).flatMap((vote) => ("answer" in vote ? [vote.member] : [])));
    for (const member of members.all) if (!heard.has(member)) record.at(member.index).missedResize = true;
  }
  return answer;
}

/**
 * Holders were counted by the old quorum. A larger capacity that needs a larger one could let more in than it allows, so it
 * is refused; the docs have the table.
 */
export async function setCapacity(members: Members, name: string, from: number, to: number): Promise<CapacityAnswer> {
  const [before, after] = [members.quorum(from), members.quorum(to)];
  if (after > before) {
    const missing = `a capacity of ${to} needs ${after} of ${members.count} members, and holders of ${from} were let in by ${before}`;
    throw new UnsupportedError(
      "quorum",
      missing,
      "Use another name for the larger capacity, or wait until all let go.",
    );
  }
  const { decided } = members.ask<CapacityAnswer, CapacityAnswer>({
    ask: (engine) => {
      // Also of its queue, wherever that is. What comes of this decides nothing.
      engine.setCapacity(turnNameOf(name), from, to).catch(() => {});
      return engine.setCapacity(name, from, to);
    },
    decide: (votes, open) => {
      const answers = answersOf(votes);
      // So many that neither the old capacity nor a third one finds a quorum.
      if (answers.filter(({ kind }) => kind === "set").length >= before) return { kind: "set" };
      const mismatches = answers.filter(({ kind }) => kind === "mismatch");
      if (mismatches.length > members.count - before) return mismatches[0];
      if (open > 0) return undefined;
      throw new QuorumNotReached(before, members.count, votes);
    },
  });
  return decided;
}
