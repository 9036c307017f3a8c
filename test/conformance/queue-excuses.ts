import assert from "node:assert/strict";
import type { Excuse } from "../../src/testing/conformance/index.js";
import { granted, queued, renewOne } from "../../src/testing/conformance/kit.js";

/** Nobody is named as the one ahead: the core waits for a push, as with another client's claim. */
const namesNobody: Excuse = {
  reason: "the engine does not say yet which claim is directly ahead",
  async instead(kit) {
    const a = await kit.open();
    const name = kit.name();
    const [holder, waiter] = [kit.claim(name), kit.claim(name)];
    granted(await a.claim(holder));
    assert.equal(queued(await a.claim(waiter)).ahead, undefined);
    assert.equal(await a.release(holder), "released");
    granted(await renewOne(a, waiter));
    assert.equal(await a.release(waiter), "released");
    await kit.passesOn(a, name, [holder, waiter]);
  },
};

/** What ZooKeeper and etcd do not do, why, and what they do instead. */
export const QUEUE_EXCUSES: Readonly<Record<string, Excuse>> = {
  "a claim that waits is told on arrival which claim of its own client is directly before it, and no other":
    namesNobody,
  "a claim whose lease has ended is not the one that a new claim is told to stand behind": namesNobody,
  "a claim that its client has let go on already is granted by the release without a push": {
    reason: "a watch tells, whoever it is: nobody has to be left out",
    async instead(kit) {
      const a = await kit.open();
      const name = kit.name();
      const [holder, waiter] = [kit.claim(name), kit.claim(name)];
      granted(await a.claim(holder));
      queued(await a.claim(waiter));
      assert.equal(await a.release({ ...holder, to: waiter.id }), "released");
      granted(await renewOne(a, waiter));
      assert.equal(await a.release(waiter), "released");
      await kit.passesOn(a, name, [holder, waiter]);
    },
  },
  "tokens that a claim keeps for itself are nobody else's, whether it holds or waits": {
    reason: "the store mints the tokens, one for each change: none can be kept",
    async instead(kit) {
      assert.notEqual((await kit.open()).reserves, true, "so it is not said to be possible");
    },
  },
};
