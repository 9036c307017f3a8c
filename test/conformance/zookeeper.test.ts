import assert from "node:assert/strict";
import { afterAll, beforeAll, describe } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { UnsupportedError } from "../../src/core/errors.js";
import { openZookeeper } from "../../src/engines/zookeeper/index.js";
import type { ConformanceOptions } from "../../src/testing/conformance/index.js";
import { granted } from "../../src/testing/conformance/kit.js";
import { startEnsemble, startZooKeeper } from "../servers/zookeeper.js";
import { judge } from "./judge.js";
import { QUEUE_EXCUSES } from "./queue-excuses.js";

const START_MS = 60_000;
/** With sessions of up to 20 s, the default. */
const TICK = { tickMs: 1000 };

const excused: NonNullable<ConformanceOptions["excused"]> = {
  ...QUEUE_EXCUSES,
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

type Servers = { readonly url: string; stop(): Promise<void> };

function suite(
  title: string,
  start: () => Promise<Servers>,
  open: (url: string) => Promise<Engine>,
  runs: number,
): void {
  describe(title, () => {
    let servers: Servers | undefined;
    beforeAll(async () => {
      servers = await start();
    }, START_MS);
    afterAll(() => servers?.stop(), START_MS);
    const engine = (): Promise<Engine> => {
      assert.ok(servers, "the server did not start");
      return open(servers.url);
    };
    judge({ engine, leaseStepMs: 800, sessionBound: true, excused }, { runs, rounds: 2, timeoutMs: 180_000 });
  });
}

async function single(): Promise<Servers> {
  const { port, running } = await startZooKeeper(TICK);
  return { url: `zookeeper://127.0.0.1:${port}/conformance`, stop: () => running.stop() };
}

async function three(): Promise<Servers> {
  const { ports, stop } = await startEnsemble(TICK);
  return { url: `zookeeper://${ports.map((port) => `127.0.0.1:${port}`).join(",")}/conformance`, stop };
}

suite("one server", single, (url) => openZookeeper(url), 2);
suite("one server, Kazoo's names", single, (url) => openZookeeper(url, { nodeNames: "kazoo" }), 2);
suite("three servers", three, (url) => openZookeeper(url), 2);
