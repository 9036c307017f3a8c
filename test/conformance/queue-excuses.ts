import assert from "node:assert/strict";
import type { Excuse } from "../../src/testing/conformance/index.js";

/** What ZooKeeper and etcd do not do, why, and what they do instead. */
export const QUEUE_EXCUSES: Readonly<Record<string, Excuse>> = {
  "tokens that a claim keeps for itself are nobody else's, whether it holds or waits": {
    reason: "the store mints the tokens, one for each change: none can be kept",
    async instead(kit) {
      assert.notEqual((await kit.open()).reserves, true, "so it is not said to be possible");
    },
  },
};
