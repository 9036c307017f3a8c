import assert from "node:assert/strict";
import { afterAll, beforeAll, describe } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { openEtcd } from "../../src/engines/etcd/index.js";
import type { Excuse } from "../../src/testing/conformance/index.js";
import { granted, renewOne } from "../../src/testing/conformance/kit.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { judge } from "./judge.js";
import { QUEUE_EXCUSES } from "./queue-excuses.js";

/** Leases are whole seconds of two at least, and what has ended is removed within half a second. */
const STEP_MS = 3_000;
const START_MS = 60_000;

const SUGGESTED = "a suggested token is kept when it is higher, raised by a renewal, and never gone below";

const noSuggestions: Excuse = {
  reason: "a token is the revision that created the claim's key",
  async instead(kit) {
    const a = await kit.open();
    const name = kit.name();
    const claim = kit.claim(name, { tokenAtLeast: 2 ** 40 });
    const { token } = granted(await a.claim(claim));
    assert.ok(token < 2 ** 40, "the suggestion is not taken");
    assert.equal(granted(await renewOne(a, { ...claim, tokenAtLeast: 2 ** 41 })).token, token);
    assert.equal(await a.release(claim), "released");
    await kit.passesOn(a, name, [claim]);
  },
};

describe.each([
  ["one server", 1, 4],
  ["a cluster of three", 3, 2],
])("%s", (_title, count, runs) => {
  let cluster: EtcdCluster | undefined;
  beforeAll(async () => void (cluster = await startEtcd(count)), START_MS);
  afterAll(() => cluster?.stop(), START_MS);
  const engine = (): Promise<Engine> => openEtcd(cluster?.url ?? "");
  const setting = { engine, leaseStepMs: STEP_MS, excused: { ...QUEUE_EXCUSES, [SUGGESTED]: noSuggestions } };
  judge(setting, { runs, rounds: 3, timeoutMs: 120_000 });
});
