import { expect, test } from "vitest";
import type { EtcdDriver } from "../../src/engines/etcd/driver.js";
import { Watches } from "../../src/engines/etcd/events.js";
import { DELETED, type WatchEvent, type WatchRequest, type WatchResponse } from "../../src/engines/etcd/messages.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** What is asked of the server's watches and told of them: a server that is busy, and one that lags behind. */

type Rig = {
  watches: Watches;
  sent: WatchRequest[];
  say: (response: Partial<WatchResponse>, revision: number) => void;
};

async function rig(): Promise<Rig> {
  const sent: WatchRequest[] = [];
  let heard: (response: WatchResponse) => void = () => {};
  const driver = {
    watch: async (hear: (response: WatchResponse) => void) => {
      heard = hear;
      return { send: (request: WatchRequest) => sent.push(request), close: () => {} };
    },
  } as unknown as EtcdDriver;
  const watches = new Watches(driver, new FakeClock(), new SeededChance(1), () => {});
  const rest = { watch_id: 1, created: false, canceled: false, compact_revision: 0, cancel_reason: "", events: [] };
  const say = (response: Partial<WatchResponse>, revision: number): void =>
    heard({ ...rest, ...response, header: { cluster_id: 1n, revision, raft_term: 1n } });
  return { watches, sent, say };
}

const deleted = (key: string, mod_revision: number): WatchEvent => ({
  type: DELETED,
  kv: { key, mod_revision, create_revision: 0, value: Buffer.alloc(0), lease: 0n },
});

/** Watches "k" from revision 10 on. */
async function watching(over: { missed?: () => void } = {}) {
  const { watches, sent, say } = await rig();
  const told: (readonly WatchEvent[])[] = [];
  watches.add({ key: "k", start_revision: 10, heard: (events) => told.push(events), broken: () => {}, ...over });
  await settle();
  return { sent, say, told };
}

test("a watch that reads what it missed begins with what comes from now on: one in the past would be served ten times a second", async () => {
  expect((await watching({ missed: () => {} })).sent).toEqual([{ create_request: { key: "k", watch_id: 1 } }]);
  const { sent } = await watching();
  expect(sent).toEqual([{ create_request: { key: "k", watch_id: 1, start_revision: 10 } }]);
});

test.each([
  [9, 0],
  [10, 1],
  [11, 1],
])("a watch from revision 10 on that begins behind revision %i has to read %i times", async (revision, times) => {
  let reads = 0;
  const { say } = await watching({ missed: () => (reads += 1) });
  say({ created: true }, revision);
  expect(reads).toBe(times);
});

test("pitfall 1: a member that lags behind tells of a key that was another claim's then: nobody hears it", async () => {
  const { say, told } = await watching({ missed: () => {} });
  say({ created: true }, 7);
  say({ events: [deleted("k", 8)] }, 8);
  say({ events: [deleted("k", 9), deleted("k", 12)] }, 12);
  expect(told).toEqual([[deleted("k", 12)]]);
});
