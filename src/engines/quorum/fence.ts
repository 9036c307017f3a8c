import type { Fence, Granted } from "../../core/engine.js";
import type { Member } from "./member.js";

/** A member's yes. */
export type Yes = { readonly member: Member; readonly answer: Granted };

/**
 * Whether a member stores what counts. Alone there, a higher token harms nobody. Beside others it would raise the floor that
 * the member tells them, above the token this holder writes with: then it must be the very same.
 */
export function stores({ answer }: Yes, token: number, exclusive: boolean): boolean {
  return exclusive ? answer.token >= token : answer.token === token;
}

/**
 * The token that counts: the one this claim has; else the one a quorum agrees on; else the highest, which then has to be
 * written back. Every later quorum shares a member with the one that stores it, and that member mints a higher one.
 */
export function tokenOf(yes: readonly Yes[], needed: number, known: number): number {
  if (known > 0) return known;
  const counts = new Map<number, number>();
  for (const { answer } of yes) counts.set(answer.token, (counts.get(answer.token) ?? 0) + 1);
  for (const [token, count] of counts) if (count >= needed) return token;
  return Math.max(...counts.keys());
}

/**
 * What a resource may refuse everything below. Each member answers with the lowest live token it knows; every living holder
 * stands on a quorum, which shares a member with ours, so the lowest of these answers fences nobody who lives.
 */
export function fenceOf(yes: readonly Yes[], token: number): Fence {
  const floor = Math.min(token, ...yes.map(({ answer }) => answer.floor));
  if (yes.every(({ answer }) => answer.live === undefined)) return { token, floor };
  const live = new Set([token]);
  for (const { answer } of yes) for (const one of answer.live ?? []) if (one !== answer.token) live.add(one);
  return { token, floor, live: [...live].toSorted((one, two) => one - two) };
}

/** Until when a quorum holds it: the `needed`-th longest time left, less what clocks may differ by. */
export function leftOf(yes: readonly Yes[], needed: number, drift: { driftRatio: number; driftMs: number }): number {
  const left = yes.map(({ answer }) => answer.leftMs).toSorted((one, two) => two - one)[needed - 1] ?? 0;
  return left - left * drift.driftRatio - drift.driftMs;
}
