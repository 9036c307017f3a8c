import assert from "node:assert/strict";
import { afterAll, beforeAll, describe } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { UnsupportedError } from "../../src/core/errors.js";
import {
  type NativeZooKeeper,
  nativeClient,
  openZookeeper,
  zookeeperEngine,
} from "../../src/engines/zookeeper/index.js";
import type { ConformanceOptions } from "../../src/testing/conformance/index.js";
import { granted, type Kit } from "../../src/testing/conformance/kit.js";
import { nativeZooKeeper } from "../servers/native-zookeeper.js";
import { startEnsemble, startZooKeeper } from "../servers/zookeeper.js";
import { judge } from "./judge.js";

/** The native client is compiled once. */
const START_MS = 180_000;
/** With sessions of up to 20 s, the default. */
const TICK = { tickMs: 1000 };

const excused: NonNullable<ConformanceOptions["excused"]> = {
  "a hold handed over goes on in another client, which alone can release it": {
    reason: "a hold ends with the session of its process",
    async instead(kit) {
      const locks = await kit.connect();
      const hold = await locks.mutex(kit.name()).acquire();
      assert.throws(() => hold.handOver(), UnsupportedError);
      hold.throwIfLost();
      await hold.release();
    },
  },
  "a suggested token is kept when it is higher, raised by a renewal, and never gone below": {
    reason: "tokens are the numbers of ZooKeeper's own transactions",
    async instead(kit) {
      const a = await kit.open();
      const name = kit.name();
      const claim = kit.claim(name, { tokenAtLeast: 2 ** 52 });
      const { token } = granted(await a.claim(claim));
      assert.ok(token < 2 ** 52);
      assert.equal(await a.release(claim), "released");
    },
  },
};

/** What the C client's binding cannot do: it has no transactions. */
const withoutCells = Object.fromEntries(
  [
    "a cell is written over the version that was read, once per operation",
    "of many writers over one version exactly one wins",
    "a watcher of a cell learns of changes by others, until it leaves",
  ].map((name) => [
    name,
    {
      reason: "this client has no transactions, so there are no cells",
      instead: async (kit: Kit) => assert.equal((await kit.open()).cells, null),
    },
  ]),
);

type Place = { readonly url: string; stop(): Promise<void> };

function suite(
  title: string,
  start: () => Promise<Place>,
  open: (url: string) => Promise<Engine>,
  runs: number,
  more: ConformanceOptions["excused"] = {},
): void {
  describe(title, () => {
    let place: Place | undefined;
    beforeAll(async () => {
      place = await start();
    }, START_MS);
    afterAll(() => place?.stop(), START_MS);
    const engine = (): Promise<Engine> => {
      assert.ok(place, "the server did not start");
      return open(place.url);
    };
    judge(
      { engine, leaseStepMs: 800, sessionBound: true, forgetsTokens: true, excused: { ...excused, ...more } },
      { runs, rounds: 2, timeoutMs: 180_000 },
    );
  });
}

async function single(): Promise<Place> {
  const { port, running } = await startZooKeeper(TICK);
  return { url: `zookeeper://127.0.0.1:${port}/conformance`, stop: () => running.stop() };
}

async function three(): Promise<Place> {
  const { ports, stop } = await startEnsemble(TICK);
  return { url: `zookeeper://${ports.map((port) => `127.0.0.1:${port}`).join(",")}/conformance`, stop };
}

suite("one server", single, (url) => openZookeeper(url), 2);
suite("one server, Kazoo's names", single, (url) => openZookeeper(url, { nodeNames: "kazoo" }), 2);
suite("three servers", three, (url) => openZookeeper(url), 2);

let Native: NativeZooKeeper | undefined;

suite(
  "one server, the native client",
  async () => {
    Native = nativeZooKeeper();
    return single();
  },
  (url) => {
    assert.ok(Native);
    const connect = url.slice("zookeeper://".length).split("/")[0] ?? "";
    return zookeeperEngine(nativeClient(Native, { connect }), { base: "/native" });
  },
  2,
  withoutCells,
);
