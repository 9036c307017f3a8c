import { expect, test } from "vitest";
import type { EngineEvent } from "../../src/core/engine.js";
import type { EtcdDriver } from "../../src/engines/etcd/driver.js";
import { Watches } from "../../src/engines/etcd/events.js";
import { DELETED, type WatchEvent, type WatchRequest, type WatchResponse } from "../../src/engines/etcd/messages.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** What is asked of the server's watches and told of them: a server that is busy, and one that lags behind. */

type Rig = {
  watches: Watches;
  sent: WatchRequest[];
  clock: FakeClock;
  end: () => void;
  say: (response: Partial<WatchResponse>, revision: number) => void;
  told: EngineEvent[];
};

async function rig(): Promise<Rig> {
  const sent: WatchRequest[] = [];
  let heard: (response: WatchResponse) => void = () => {};
  let end: () => void = () => {};
  const clock = new FakeClock();
  const driver = {
    watch: async (hear: (response: WatchResponse) => void, ended: () => void) => {
      heard = hear;
      end = ended;
      return { send: (request: WatchRequest) => sent.push(request), close: () => {} };
    },
  } as unknown as EtcdDriver;
  const told: EngineEvent[] = [];
  const watches = new Watches(driver, clock, new SeededChance(1), (event) => told.push(event));
  const rest = { watch_id: 1, created: false, canceled: false, compact_revision: 0, cancel_reason: "", events: [] };
  const say = (response: Partial<WatchResponse>, revision: number): void =>
    heard({ ...rest, ...response, header: { cluster_id: 1n, revision, raft_term: 1n } });
  return { watches, sent, say, clock, told, end: () => end() };
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

const create = (key: string, watch_id: number, more: object = {}): WatchRequest => ({
  create_request: { key, watch_id, ...more },
});
const cancel = (watch_id: number): WatchRequest => ({ cancel_request: { watch_id } });

/** Listens to keys, and notes what it hears. */
async function listenersOf() {
  const { watches, sent, say, clock, end } = await rig();
  const listen = (key: string, start_revision: number, missing = false) => {
    const heard: number[] = [];
    const notes = { heard, missed: 0, broken: 0 };
    const stop = watches.add({
      key,
      start_revision,
      heard: (events) => heard.push(...events.map(({ kv }) => kv?.mod_revision ?? 0)),
      broken: () => (notes.broken += 1),
      ...(missing ? { missed: () => (notes.missed += 1) } : {}),
    });
    return { notes, stop };
  };
  return { watches, sent, say, clock, end, listen };
}

test("a watch that is left is kept for a second, and serves who watches the same key next: nothing is sent", async () => {
  const { sent, say, clock, listen } = await listenersOf();
  const first = listen("k", 10, true);
  await settle();
  say({ created: true }, 9);
  say({ events: [deleted("k", 10)] }, 10);
  first.stop();
  say({ events: [deleted("k", 12)] }, 12);
  const next = listen("k", 13, true);
  await settle();
  say({ events: [deleted("k", 14)] }, 14);
  expect([first.notes, next.notes].map(({ heard, missed }) => ({ heard, missed }))).toEqual([
    { heard: [10], missed: 0 },
    { heard: [14], missed: 0 },
  ]);
  expect(sent).toEqual([create("k", 1)]);
  next.stop();
  await clock.advance(999);
  expect(sent).toEqual([create("k", 1)]);
  await clock.advance(1_001);
  expect(sent).toEqual([create("k", 1), cancel(1)]);
});

test("a watch that is kept ends when it has told nobody eleven times", async () => {
  const { sent, say, listen } = await listenersOf();
  const first = listen("k", 10, true);
  await settle();
  say({ created: true }, 9);
  first.stop();
  for (let revision = 10; revision < 20; revision += 1) say({ events: [deleted("k", revision)] }, revision);
  const next = listen("k", 20, true);
  next.stop();
  for (let revision = 20; revision < 30; revision += 1) say({ events: [deleted("k", revision)] }, revision);
  await settle();
  expect(sent).toEqual([create("k", 1)]);
  say({ events: [deleted("k", 30)] }, 30);
  await settle();
  expect(sent).toEqual([create("k", 1), cancel(1)]);
  listen("k", 31, true);
  expect(sent.at(-1)).toEqual(create("k", 2));
});

test("who listens to a watch that was there before is told what it told already, from the revision on that it asks for", async () => {
  const { sent, say, listen } = await listenersOf();
  const first = listen("k", 10);
  await settle();
  say({ created: true }, 20);
  for (const revision of [21, 22, 23]) say({ events: [deleted("k", revision)] }, revision);
  const [next, left] = [listen("k", 22), listen("k", 22)];
  left.stop();
  expect(next.notes.heard, "not before it has the watch in its hand").toEqual([]);
  await settle();
  expect([first, next, left].map(({ notes }) => notes.heard)).toEqual([[21, 22, 23], [22, 23], []]);
  expect(sent).toEqual([create("k", 1, { start_revision: 10 })]);
});

test("who asks for more than a watch has kept reads what it missed, or gets a watch of its own", async () => {
  const { sent, say, listen } = await listenersOf();
  listen("k", 10);
  await settle();
  say({ created: true }, 20);
  for (const revision of [21, 22, 23, 24, 25, 26]) say({ events: [deleted("k", revision)] }, revision);
  const [whole, missing, own] = [listen("k", 23, true), listen("k", 22, true), listen("k", 22)];
  await settle();
  expect([whole, missing, own].map(({ notes }) => [notes.heard, notes.missed])).toEqual([
    [[23, 24, 25, 26], 0],
    [[], 1],
    [[], 0],
  ]);
  expect(sent.slice(1)).toEqual([create("k", 2, { start_revision: 22 })]);
});

test("who comes while a watch is being made is told what that missed", async () => {
  const { sent, say, listen } = await listenersOf();
  const [early, late] = [listen("k", 10, true), listen("k", 15, true)];
  await settle();
  say({ created: true }, 12);
  expect([early.notes.missed, late.notes.missed]).toEqual([1, 0]);
  expect(sent).toEqual([create("k", 1)]);
});

test("a watch that the server ended, or whose stream ended, serves nobody: all who listened are told", async () => {
  const { sent, say, clock, end, listen } = await listenersOf();
  const both = [listen("k", 10, true), listen("k", 11, true)];
  await settle();
  say({ created: true }, 9);
  say({ canceled: true }, 12);
  const own = listen("k", 13, true);
  await settle();
  await clock.advance(10_000);
  expect(both.map(({ notes }) => notes.broken)).toEqual([1, 1]);
  expect(sent).toEqual([create("k", 1), create("k", 2)]);
  own.stop();
  end();
  listen("k", 14, true);
  await settle();
  expect(sent.slice(2), "on another stream").toEqual([create("k", 3)]);
  await clock.advance(10_000);
  expect(own.notes.broken).toBe(0);
});

test("pitfall 47: of many watches that are left only the last few are kept", async () => {
  const { sent, listen, clock } = await listenersOf();
  const all = Array.from({ length: 40 }, (_, n) => listen(`k${n}`, 10, true));
  await settle();
  for (const { stop } of all) stop();
  await settle();
  const cancelled = sent.flatMap(({ cancel_request }) => cancel_request?.watch_id ?? []);
  expect(cancelled).toEqual(Array.from({ length: 8 }, (_, n) => n + 1));
  await clock.advance(2_000);
  expect(sent.filter(({ cancel_request }) => cancel_request !== undefined)).toHaveLength(40);
});

test("that watches ended is told once: not of those that never began, and not where nobody watched", async () => {
  const { watches, say, end, told, clock } = await rig();
  const watch = { key: "k", start_revision: 10, heard: () => {}, broken: () => {} };
  watches.add(watch);
  await settle();
  end();
  expect(told, "it never began").toEqual([]);
  await clock.advance(10_000);
  const leave = watches.add(watch);
  await settle();
  say({ created: true, watch_id: 2 }, 10);
  end();
  expect(told).toEqual([{ kind: "warning", message: expect.stringMatching(/watches in etcd ended/) }]);
  leave();
  await clock.advance(10_000);
  // It is kept for a second, for whoever watches the same key next.
  watches.add(watch)();
  await settle();
  say({ created: true, watch_id: 3 }, 10);
  end();
  expect(told).toHaveLength(1);
});

/** Each stream by itself, opened when the test says so. Pauses are as long as they can be. */
function streamsOf() {
  const clock = new FakeClock();
  const streams: {
    open(): void;
    fail(): void;
    end(): void;
    say(response: Partial<WatchResponse>, revision: number): void;
    readonly sent: WatchRequest[];
    closed: number;
  }[] = [];
  const driver = {
    watch: (hear: (response: WatchResponse) => void, ended: () => void) =>
      new Promise((resolve, reject) => {
        const sent: WatchRequest[] = [];
        const rest = {
          ...{ watch_id: 1, created: false, canceled: false, compact_revision: 0, cancel_reason: "", events: [] },
        };
        const stream = {
          sent,
          closed: 0,
          open: () =>
            resolve({ send: (request: WatchRequest) => sent.push(request), close: () => (stream.closed += 1) }),
          fail: () => reject(new Error("nobody is there")),
          end: ended,
          say: (response: Partial<WatchResponse>, revision: number) =>
            hear({ ...rest, ...response, header: { cluster_id: 1n, revision, raft_term: 1n } }),
        };
        streams.push(stream);
      }),
  } as unknown as EtcdDriver;
  const chance = { fraction: () => 1, id: () => "id" };
  const watches = new Watches(driver, clock, chance, () => {});
  const broken: string[] = [];
  const heard: string[] = [];
  const listen = (key: string): (() => void) =>
    watches.add({
      key,
      start_revision: 10,
      heard: () => heard.push(key),
      broken: () => broken.push(`${key} at ${clock.now()}`),
    });
  return { clock, streams, watches, broken, heard, listen };
}

test("what is asked for while a stream is opened is sent once it is open, each once, and later ones at once", async () => {
  const { streams, listen } = streamsOf();
  listen("a");
  listen("b");
  await settle();
  expect(streams).toHaveLength(1);
  streams[0]?.open();
  await settle();
  listen("c");
  await settle();
  const keys = streams[0]?.sent.map(({ create_request }) => create_request?.key);
  expect([streams.length, keys]).toEqual([1, ["a", "b", "c"]]);
});

test("a stream that cannot be opened, or ends, is told to all who watched, after a pause that grows until a watch begins", async () => {
  const { clock, streams, broken, listen } = streamsOf();
  listen("a");
  listen("b");
  streams[0]?.fail();
  await settle();
  expect(broken, "not at once").toEqual([]);
  await clock.advance(10_000);
  expect(broken).toEqual(["a at 50", "b at 50"]);
  listen("c");
  streams[1]?.open();
  await settle();
  streams[1]?.end();
  await clock.advance(10_000);
  expect(broken.slice(2)).toEqual(["c at 10100"]);
  listen("d");
  streams[2]?.open();
  await settle();
  streams[2]?.say({ created: true, watch_id: 4 }, 9);
  streams[2]?.end();
  await clock.advance(10_000);
  expect(broken.slice(3), "it had begun").toEqual(["d at 20050"]);
});

test("one that leaves in the pause is not told, the others are; those that break meanwhile are told with them", async () => {
  const { clock, streams, broken, listen } = streamsOf();
  const leave = listen("a");
  listen("b");
  streams[0]?.open();
  await settle();
  streams[0]?.end();
  leave();
  expect(clock.pending, "the pause alone: what has ended is not kept").toBe(1);
  await clock.advance(20);
  listen("c");
  streams[1]?.fail();
  await clock.advance(29);
  expect(broken).toEqual([]);
  await clock.advance(10_000);
  expect([broken, clock.pending]).toEqual([["b at 50", "c at 50"], 0]);
  leave();
});

test("pitfall 43: what an old stream says or ends with counts for nobody any more", async () => {
  const { clock, streams, broken, heard, listen } = streamsOf();
  listen("a");
  streams[0]?.open();
  await settle();
  streams[0]?.say({ created: true, watch_id: 1 }, 9);
  streams[0]?.end();
  await clock.advance(1000);
  listen("a");
  streams[1]?.open();
  await settle();
  for (const watch_id of [1, 2, 7]) streams[0]?.say({ watch_id, events: [deleted("a", 12)] }, 12);
  streams[0]?.end();
  await clock.advance(1000);
  expect([heard, broken]).toEqual([[], ["a at 50"]]);
  streams[1]?.say({ watch_id: 7, events: [deleted("a", 12)] }, 12);
  expect(heard, "of a watch that nobody has").toEqual([]);
  streams[1]?.say({ watch_id: 2, events: [deleted("a", 12)] }, 12);
  expect(heard).toEqual(["a"]);
});

test("what the server cancels is told after a pause, and is not cancelled once more", async () => {
  const { clock, streams, broken, listen } = streamsOf();
  listen("a");
  listen("b");
  streams[0]?.open();
  await settle();
  streams[0]?.say({ canceled: true, created: true, watch_id: 1 }, 9);
  await clock.advance(10_000);
  expect(broken).toEqual(["a at 50"]);
  expect(streams[0]?.sent.filter(({ cancel_request }) => cancel_request !== undefined)).toEqual([]);
  listen("a");
  await settle();
  expect(streams[0]?.sent.at(-1), "a new one").toMatchObject({ create_request: { key: "a", watch_id: 3 } });
});

test("who closes is told nothing any more and leaves nothing behind: no timer, no stream, none that opens later", async () => {
  const { clock, streams, watches, broken, listen } = streamsOf();
  listen("a")();
  listen("b");
  streams[0]?.open();
  await settle();
  expect(clock.pending, "one is kept for a while").toBe(1);
  watches.close();
  expect([streams[0]?.closed, clock.pending]).toEqual([1, 0]);
  listen("c")();
  await clock.advance(10_000);
  expect([streams.length, streams[0]?.sent.length, clock.pending, broken]).toEqual([1, 2, 0, []]);
  // While one is opened, and in the pause after another has ended.
  const late = streamsOf();
  late.listen("a");
  late.watches.close();
  late.streams[0]?.open();
  await settle();
  expect([late.streams[0]?.closed, late.streams[0]?.sent, late.streams.length]).toEqual([1, [], 1]);
  const pausing = streamsOf();
  pausing.listen("a");
  pausing.streams[0]?.fail();
  await settle();
  expect(pausing.clock.pending).toBe(1);
  pausing.watches.close();
  expect(pausing.clock.pending).toBe(0);
  await pausing.clock.advance(10_000);
  expect([pausing.broken, pausing.streams.length]).toEqual([[], 1]);
});

test("watches are kept for a second each, however many are left one after the other", async () => {
  const { clock, streams, listen } = streamsOf();
  const [a, b] = [listen("a"), listen("b")];
  streams[0]?.open();
  await settle();
  const cancelled = (): number[] =>
    streams[0]?.sent.flatMap(({ cancel_request }) => cancel_request?.watch_id ?? []) ?? [];
  a();
  await clock.advance(600);
  b();
  await clock.advance(400);
  expect(cancelled()).toEqual([1]);
  await clock.advance(999);
  expect(cancelled()).toEqual([1]);
  await clock.advance(1);
  expect([cancelled(), clock.pending]).toEqual([[1, 2], 0]);
  // Who listens again in that time keeps it.
  const c = listen("c");
  await settle();
  c();
  await clock.advance(500);
  listen("c");
  await clock.advance(5000);
  expect([cancelled(), streams[0]?.sent.filter(({ create_request }) => create_request?.key === "c").length]).toEqual([
    [1, 2],
    1,
  ]);
});

test("a stream that was told to have ended, and then cannot be opened, breaks nothing that was asked for meanwhile", async () => {
  const { clock, streams, broken, listen } = streamsOf();
  listen("a");
  streams[0]?.end();
  listen("b");
  streams[0]?.fail();
  await settle();
  streams[1]?.open();
  await clock.advance(10_000);
  expect([broken, streams[1]?.sent.length]).toEqual([["a at 50"], 1]);
});
