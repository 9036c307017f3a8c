import { expect, test } from "vitest";
import { CallTimeouts } from "../../src/engine-kit/call-timeouts.js";
import { AckLane } from "../../src/engines/redis/ack.js";
import { RedisCells } from "../../src/engines/redis/cells.js";
import type { Hearing, Lane, RedisLike } from "../../src/engines/redis/client.js";
import { OwnClient } from "../../src/engines/redis/own.js";
import { Scripts } from "../../src/engines/redis/scripts.js";
import { Subscription } from "../../src/engines/redis/subscription.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** What becomes of connections that are replaced, by a fake clock: who is closed, who is told, and how often. */

const HOUR_MS = 60 * 60 * 1000;

/** A hearing that answers while `answers` says so. */
function hearing(answers: () => boolean): { readonly closed: number; readonly hearing: Hearing } {
  const answer = (): Promise<void> => (answers() ? Promise.resolve() : new Promise(() => {}));
  const one = { closed: 0 };
  const close = (): void => void (one.closed += 1);
  return Object.assign(one, { hearing: { subscribe: answer, unsubscribe: answer, ping: answer, close } });
}

function subscriptionOn(hear: () => Promise<Hearing>) {
  const clock = new FakeClock();
  const told: string[] = [];
  const warn = (message: string): void => void told.push(message);
  const [down, back] = [(): void => void told.push("down"), (): void => void told.push("back")];
  const client = { hear } as unknown as RedisLike;
  const parts = { client, clock, chance: new SeededChance(1), limitMs: 1000 };
  return { clock, told, subscription: new Subscription({ ...parts, warn, down, back }) };
}

test("a silent subscription is closed and told of once, and so is a server that is away for an hour", async () => {
  let [answers, away] = [true, false];
  const first = hearing(() => answers);
  let opened = 0;
  const { clock, told, subscription } = subscriptionOn(async () => {
    opened += 1;
    if (away) throw new Error("ECONNREFUSED");
    return opened === 1 ? first.hearing : hearing(() => true).hearing;
  });
  await subscription.open("channel", () => {});
  subscription.expect();
  await clock.advance(1500);
  expect(subscription.live).toBe(true);
  [answers, away] = [false, true];
  subscription.expect();
  await clock.advance(3000);
  expect(first.closed).toBe(1);
  await clock.advance(HOUR_MS);
  expect(told).toEqual([
    expect.stringMatching(/pushes said nothing for 1000 ms and is replaced/),
    "down",
    expect.stringMatching(/cannot be opened \(ECONNREFUSED\)/),
  ]);
  away = false;
  await clock.advance(10_000);
  expect(told.slice(3)).toEqual(["back"]);
  expect(subscription.live).toBe(true);
  await clock.advance(HOUR_MS);
  expect(told).toHaveLength(4);
  subscription.close();
  expect(clock.pending).toBe(0);
});

test("a channel that the server refuses is an answer: the connection stays", async () => {
  const one = hearing(() => true);
  const subscribe = (channel: string): Promise<void> =>
    channel === "refused" ? Promise.reject(new Error("NOPERM")) : Promise.resolve();
  const { clock, told, subscription } = subscriptionOn(async () => ({ ...one.hearing, subscribe }));
  await subscription.open("channel", () => {});
  await expect(subscription.add("refused", () => {})).rejects.toThrow("NOPERM");
  await clock.advance(5000);
  expect(told).toEqual([]);
  expect(one.closed).toBe(0);
  subscription.close();
});

test("a client that takes another's place: the old one is closed, and calls go to the new one; after the end none stays", async () => {
  const closed: string[] = [];
  const client = (name: string): RedisLike =>
    ({ call: async () => name, close: async () => void closed.push(name) }) as unknown as RedisLike;
  let made = (_client: RedisLike): void => {};
  const own = new OwnClient(client("first"), () => new Promise((resolve) => (made = resolve)));
  const replacing = own.replace();
  expect(await own.call("key", ["ping"])).toBe("first");
  made(client("second"));
  await replacing;
  expect(await own.call("key", ["ping"])).toBe("second");
  expect(closed).toEqual(["first"]);
  const late = own.replace();
  await own.close();
  made(client("third"));
  await late;
  expect(closed).toEqual(["first", "second", "third"]);
});

test("the connection for WAIT that is replaced is closed, also when the next one comes after the end", async () => {
  const closed: string[] = [];
  const lane = (name: string): Lane => ({ pipeline: async () => [], close: () => void closed.push(name) });
  let made = (_lane: Lane): void => {};
  const client = { lane: () => new Promise<Lane>((resolve) => (made = resolve)) } as unknown as RedisLike;
  const deadlines = new CallTimeouts(new FakeClock(), 1000);
  const ack = new AckLane(client, lane("first"), deadlines, () => 1, 100);
  const replacing = ack.replace();
  made(lane("second"));
  await replacing;
  expect(closed).toEqual(["first"]);
  const late = ack.replace().catch(() => {});
  ack.close();
  made(lane("third"));
  await late;
  await Promise.resolve();
  expect(closed).toEqual(["first", "second", "third"]);
});

test("a cell that somebody begins to watch while nothing is heard is read again and again", async () => {
  const clock = new FakeClock();
  let version = 1;
  const client = { offline: false, call: async () => [String(version), "value"] } as unknown as RedisLike;
  const deadlines = new CallTimeouts(clock, 1000);
  const away = (): Promise<Hearing> => Promise.reject(new Error("away"));
  const { subscription } = subscriptionOn(away);
  const scripts = new Scripts(client, deadlines);
  const cells = new RedisCells({ client, scripts, deadlines, clock, prefix: "", idleMs: 1, subscription });
  const seen: number[] = [];
  cells.watch("cell", (cell) => seen.push(cell.version));
  for (version = 2; version < 5; version += 1) await clock.advance(2000);
  expect(seen).toEqual(expect.arrayContaining([2, 3, 4]));
  cells.close();
});
