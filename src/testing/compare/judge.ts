import assert from "node:assert/strict";
import type { ClaimAnswer, Granted, Queued, RenewAnswer } from "../../core/engine.js";
import type { NameState } from "../../core/inspect.js";
import type { Call, Outcome, Reference } from "./reference.js";

/** Compares an outcome with the reference's: everything that a store answers, tokens and times to the last digit. */
export class Judge {
  readonly #reference: Reference;
  /** The highest token that the store ever answered or pushed, of any name. */
  readonly #highest: () => number;
  readonly #tokens = new Map<string, Set<number>>();

  constructor(reference: Reference, highest: () => number) {
    this.#reference = reference;
    this.#highest = highest;
  }

  /**
   * What to ask the reference. A store may forget an idle name, and start it again above all tokens that it has forgotten:
   * the reference, which knows one name only, then starts there too.
   */
  asked(call: Call, actual: Outcome): Call {
    if (call.verb !== "claim" || actual.verb !== "claim" || actual.answer.kind !== "granted") return call;
    const { request } = call;
    const { token } = actual.answer;
    if (token > this.#highest() + 1 || this.#reference.state(request.name) !== undefined) return call;
    return { ...call, request: { ...request, tokenAtLeast: Math.max(token, request.tokenAtLeast ?? 0) } };
  }

  /** Right after the reference was asked, and before it is asked anything else. */
  compare(call: Call, expected: Outcome, actual: Outcome): void {
    if (call.verb === "claim" && expected.verb === "claim" && actual.verb === "claim") {
      this.#answer(call.request.name, expected.answer, actual.answer);
    } else if (call.verb === "renew" && expected.verb === "renew" && actual.verb === "renew") {
      assert.equal(actual.answers.length, call.requests.length, "an answer to each request");
      for (const [n, { name }] of call.requests.entries()) this.#answer(name, expected.answers[n], actual.answers[n]);
    } else if (expected.verb === "inspect" && actual.verb === "inspect") {
      for (const { token } of expected.state?.holders ?? []) this.seen(expected.state?.name ?? "", token);
      assert.deepEqual(shape(actual.state), shape(expected.state));
    } else {
      assert.deepEqual(actual, expected);
    }
  }

  /** A token that the reference minted. */
  seen(name: string, token: number): void {
    const known = this.#tokens.get(name);
    if (known === undefined) this.#tokens.set(name, new Set([token]));
    else known.add(token);
  }

  /** This number or the next above it that is nobody's token: which of two equal ones is first, no store says. */
  unused(name: string, token: number): number {
    let free = token;
    while (this.#tokens.get(name)?.has(free)) free += 1;
    return free;
  }

  #answer(
    name: string,
    expected: ClaimAnswer | RenewAnswer | undefined,
    actual: ClaimAnswer | RenewAnswer | undefined,
  ): void {
    if (expected?.kind === "granted") {
      this.seen(name, expected.token);
      assert.deepEqual(actual?.kind === "granted" ? granted(actual) : actual, granted(expected));
    } else if (expected?.kind === "queued") {
      assert.ok(actual?.kind === "queued", `queued, not ${JSON.stringify(actual)}`);
      this.seen(name, expected.token);
      assert.deepEqual(queued(actual), queued(expected));
      this.#next(name, expected.nextMs, actual.nextMs);
    } else if (expected?.kind === "busy") {
      assert.ok(actual?.kind === "busy", `busy, not ${JSON.stringify(actual)}`);
      assert.deepEqual(actual.holder, expected.holder);
      this.#next(name, expected.nextMs, actual.nextMs);
    } else {
      assert.deepEqual(actual, expected);
    }
  }

  /**
   * When to ask again. A store may name a time before the first lease ends, where it did not search for it, and so may the
   * reference: after a renewal, or where several held, each may have searched when the other did not. Nobody names a later time.
   */
  #next(name: string, expected: Queued["nextMs"] | undefined, actual: Queued["nextMs"] | undefined): void {
    if (actual === expected || actual === undefined || actual === null) return;
    const holders = this.#reference.state(name)?.holders.map(({ leftMs }) => leftMs) ?? [];
    const most = Math.min(...holders);
    assert.ok(actual >= 0 && actual <= most, `a lease ends in ${most} ms at the latest, not in ${actual}`);
  }
}

function granted({ token, floor, live, leftMs }: Granted) {
  return { leftMs, token, floor, live };
}

function queued({ token, ahead, holder, nextMs }: Queued) {
  return { token, ahead, holder, first: nextMs !== null };
}

function shape(state: NameState | undefined) {
  return state && { ...state, holders: [...state.holders], waiters: [...state.waiters] };
}
