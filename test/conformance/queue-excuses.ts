import assert from "node:assert/strict";
import type { Excuse } from "../../src/testing/conformance/index.js";
import { granted, queued, stateOf } from "../../src/testing/conformance/kit.js";

const noTimes: Excuse = {
  reason: "the store keeps no time of its own with a claim that could be shown",
  async instead(kit) {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const [holder, waiter] = [kit.claim(name), kit.claim(name)];
    granted(await a.claim(holder));
    queued(await b.claim(waiter));
    const state = await stateOf(a, name);
    assert.deepEqual(
      [state?.holders.map(({ heldMs }) => heldMs), state?.waiters.map(({ waitingMs }) => waitingMs)],
      [[undefined], [undefined]],
      "a time of another clock would be a guess",
    );
    for (const claim of [waiter, holder]) assert.equal(await a.release(claim), "released");
    await kit.passesOn(b, name, [holder, waiter]);
  },
};

/** What ZooKeeper and etcd do not do, why, and what they do instead. */
export const QUEUE_EXCUSES: Readonly<Record<string, Excuse>> = {
  "inspect tells since when a claim waits, and from its grant on since when it holds; nothing but the grant resets it":
    noTimes,
  "inspect tells of each of several holders since when it holds, also of one that shrinks, and of those that this lets in":
    noTimes,
  "inspect tells since when claims hold that a larger capacity, or somebody else's release, let in": noTimes,
  "tokens that a claim keeps for itself are nobody else's, whether it holds or waits": {
    reason: "the store mints the tokens, one for each change: none can be kept",
    async instead(kit) {
      assert.notEqual((await kit.open()).reserves, true, "so it is not said to be possible");
    },
  },
};
