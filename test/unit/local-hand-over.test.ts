import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { writeBrokenCopy } from "../../scripts/broken-copy.js";
import * as connecting from "../../src/connect.js";
import * as memory from "../../src/engines/memory/index.js";
import * as clocks from "../../src/testing/fake-clock.js";
import * as interceptors from "../../src/testing/intercept.js";
import * as chances from "../../src/testing/seeded-chance.js";
import { HAND_OVER_CASES, type Library } from "./local-hand-over-cases.js";

const shipped: Library = { ...connecting, ...memory, ...clocks, ...interceptors, ...chances };

test.each(HAND_OVER_CASES.map((one) => [one.name, one] as const))("%s", (_name, one) => one.run(shipped));

type Broken = { readonly file: string; readonly from: string; readonly to: string; readonly rejectedBy: string };
const broken = (file: string, from: string, to: string, rejectedBy: string): Broken => ({ file, from, to, rejectedBy });

/** Each condition of a local hand-over left out, and the case that notices. */
const BROKEN: Readonly<Record<string, Broken>> = {
  "handed to a claim that left": broken(
    "core/attempt.js",
    `return this.#phase === "waiting" && this.#isSure(now);`,
    `return this.#isSure(now);`,
    "a claim that is not in the queue any more is not handed anything",
  ),
  "handed to a claim that was queued anew": broken(
    "core/attempt.js",
    `if (answer.token !== this.#token)`,
    `if (false)`,
    "a claim that a late copy queued anew has nobody ahead",
  ),
  "handed on a lapsed place": broken(
    "core/attempt.js",
    `return this.#phase === "waiting" && this.#isSure(now);`,
    `return this.#phase === "waiting";`,
    "a place in the queue that is not sure is confirmed first",
  ),
  "its time counts from now": broken(
    "core/attempt.js",
    `this.#granted(fence, this.#placeMs, this.#heartbeatAt, now, relay);`,
    `this.#granted(fence, this.#placeMs, now, now, relay);`,
    "the time of the next hold counts from its last answered heartbeat",
  ),
  "handed to the next of ours": broken(
    "core/local-hand-over.js",
    `const successor = this.#byAhead.get(id);`,
    `const successor = this.#byAhead.get(id) ?? this.#byAhead.values().next().value;`,
    "nobody is handed the lock past somebody who came between",
  ),
  "handed over beside an older holder": broken(
    "core/grant.js",
    `const alone = this.fence.floor === this.fence.token;`,
    `const alone = true;`,
    "an older hold beside it keeps out whoever is next",
  ),
  "handed to a claim that a lowered capacity drops": broken(
    "core/local-hand-over.js",
    `return units === 1 || capacity === READERS_MAX;`,
    `return units <= capacity || capacity === READERS_MAX;`,
    "a claim that a lowered capacity dropped is not handed anything",
  ),
  "every place is as sure as a waiter's lease": broken(
    "core/attempt.js",
    `this.#placeMs = Math.min(this.#waiterLeaseMs, answer.leftMs ?? Infinity);`,
    ``,
    "a claim whose place the store says is sure for a short time only is not handed anything, and counts from that",
  ),
  "handed over by a hold that was lost": broken(
    "core/grant.js",
    `this.#loseIfLate(now);`,
    `;`,
    "a lost lock is handed to nobody",
  ),
  "a place in the queue is a loss at once": broken(
    "core/local-hand-over.js",
    `return this.#underWay > 0 || sentAt <= this.#settledAt;`,
    `return false;`,
    "until the store has heard of it, a place in the queue keeps the hold",
  ),
  "forgets that two are before it": broken(
    "core/local-hand-over.js",
    `if (this.#underWay === 0)\n            for`,
    `for`,
    "a writer that was handed the lock can become a reader",
  ),
  "a place in the queue is believed for ever": broken(
    "core/local-hand-over.js",
    `return this.#underWay > 0 || sentAt <= this.#settledAt;`,
    `return true;`,
    "once the store has heard of it, a place in the queue is a loss",
  ),
  "an answer under way is a loss": broken(
    "core/local-hand-over.js",
    `return this.#underWay > 0 || sentAt <= this.#settledAt;`,
    `return this.#underWay > 0;`,
    "an answer that was under way when the store heard of it is no loss",
  ),
  "the token of another claim": broken(
    "core/attempt.js",
    `const token = this.#token;`,
    `const token = this.#token - 1;`,
    "its token is the one that it arrived with",
  ),
  "handed to a fixed lease": broken(
    "core/attempt.js",
    `!this.#terms.renew || claim.chosen || !staysQueued(claim)`,
    `claim.chosen || !staysQueued(claim)`,
    "not to a claim that is not renewed, nor to one whose id the program chose",
  ),
  "handed to a chosen id": broken(
    "core/attempt.js",
    `!this.#terms.renew || claim.chosen || !staysQueued(claim)`,
    `!this.#terms.renew || !staysQueued(claim)`,
    "not to a claim that is not renewed, nor to one whose id the program chose",
  ),
  "shrinks before the store knows it as a holder": broken(
    "core/grant.js",
    `await this.#relay?.settled();`,
    ``,
    "a writer that was handed the lock can become a reader",
  ),
  "adopts only what the store knows as a holder": broken(
    "core/adopt.js",
    `if (renewal?.kind === "queued")`,
    `if (false)`,
    "another process adopts what was handed over before the store heard of it",
  ),
  "the store is not told who was served": broken(
    "core/local-hand-over.js",
    `{ name, id, tombstone, to: next.claim.id }`,
    `{ name, id, tombstone }`,
    "the next of the same client holds in the same turn, before the store has heard of the release",
  ),
};

describe("is rejected by its case", () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-hand-over-"));
  afterAll(() => rmSync(folder, { recursive: true }));

  test.each(Object.entries(BROKEN))("%s", async (name, { file, from, to, rejectedBy }) => {
    // Below a folder of that name the runner leaves files alone and Node itself loads them.
    const copy = join(folder, "node_modules", name.replaceAll(/\W+/g, "-"));
    writeBrokenCopy(copy, [[file, from, to]]);
    const parts = [
      "connect",
      "engines/memory/index",
      "testing/fake-clock",
      "testing/intercept",
      "testing/seeded-chance",
    ];
    const loaded = await Promise.all(parts.map((part) => import(pathToFileURL(join(copy, `${part}.js`)).href)));
    const rejecting = HAND_OVER_CASES.find((one) => one.name === rejectedBy);
    if (rejecting === undefined) throw new Error(`no case is called "${rejectedBy}"`);
    await expect(rejecting.run(Object.assign({}, ...loaded))).rejects.toThrow(/./);
  });
});
