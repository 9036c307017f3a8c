import { afterAll, beforeAll, describe } from "vitest";
import { openEtcd } from "../../src/engines/etcd/index.js";
import { granted } from "../../src/testing/conformance/kit.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { judge } from "./judge.js";

/** Leases are whole seconds of two at least, and what has ended is removed within half a second. */
const STEP_MS = 3_000;
const START_MS = 60_000;

describe.each([
  ["one server", 1, 4],
  ["a cluster of three", 3, 2],
])("%s", (_title, count, runs) => {
  let cluster: EtcdCluster | undefined;
  beforeAll(async () => void (cluster = await startEtcd(count)), START_MS);
  afterAll(() => cluster?.stop(), START_MS);
  judge({ engine: () => openEtcd(cluster?.url ?? ""), leaseStepMs: STEP_MS }, { runs, rounds: 3, timeoutMs: 120_000 });
});
