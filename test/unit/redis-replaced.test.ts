import { expect, test } from "vitest";
import { CallTimeouts } from "../../src/engine-kit/call-timeouts.js";
import { ReplicaAcks } from "../../src/engines/redis/ack.js";
import { RedisCells } from "../../src/engines/redis/cells.js";
import type { PipelineConnection, RedisDriver, SubscriberConnection } from "../../src/engines/redis/driver.js";
import { ReplaceableDriver } from "../../src/engines/redis/drivers/replaceable.js";
import { Subscription } from "../../src/engines/redis/events.js";
import { Scripts } from "../../src/engines/redis/scripts.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** What becomes of connections that are replaced, by a fake clock: who is closed, who is told, and how often. */

const HOUR_MS = 60 * 60 * 1000;

/** A connection that answers while `answers` says so. */
function subscriber(answers: () => boolean): { readonly closed: number; readonly connection: SubscriberConnection } {
  const answer = (): Promise<void> => (answers() ? Promise.resolve() : new Promise(() => {}));
  const one = { closed: 0 };
  const close = (): void => void (one.closed += 1);
  return Object.assign(one, { connection: { subscribe: answer, unsubscribe: answer, ping: answer, close } });
}

function subscriptionOn(openSubscriber: () => Promise<SubscriberConnection>) {
  const clock = new FakeClock();
  const told: string[] = [];
  const warn = (message: string): void => void told.push(message);
  const driver = { openSubscriber } as unknown as RedisDriver;
  const subscription = new Subscription({ driver, clock, chance: new SeededChance(1), callTimeoutMs: 1000, warn });
  subscription.onChange((live) => told.push(live ? "back" : "down"));
  return { clock, told, subscription };
}

test("a silent subscription is closed and told of once, and so is a server that is away for an hour", async () => {
  let [answers, away] = [true, false];
  const first = subscriber(() => answers);
  let opened = 0;
  const { clock, told, subscription } = subscriptionOn(async () => {
    opened += 1;
    if (away) throw new Error("ECONNREFUSED");
    return opened === 1 ? first.connection : subscriber(() => true).connection;
  });
  await subscription.open("channel", () => {});
  subscription.expectPush();
  await clock.advance(1500);
  expect(subscription.live).toBe(true);
  [answers, away] = [false, true];
  subscription.expectPush();
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
  const one = subscriber(() => true);
  const subscribe = (channel: string): Promise<void> =>
    channel === "refused" ? Promise.reject(new Error("NOPERM")) : Promise.resolve();
  const { clock, told, subscription } = subscriptionOn(async () => ({ ...one.connection, subscribe }));
  await subscription.open("channel", () => {});
  await expect(subscription.add("refused", () => {})).rejects.toThrow("NOPERM");
  await clock.advance(5000);
  expect(told).toEqual([]);
  expect(one.closed).toBe(0);
  subscription.close();
});

test("a client that takes another's place: the old one is closed, and calls go to the new one; after the end none stays", async () => {
  const closed: string[] = [];
  const client = (name: string): RedisDriver =>
    ({ call: async () => name, close: async () => void closed.push(name) }) as unknown as RedisDriver;
  let made = (_client: RedisDriver): void => {};
  const own = new ReplaceableDriver(client("first"), () => new Promise((resolve) => (made = resolve)));
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
  const connection = (name: string): PipelineConnection => ({
    pipeline: async () => [],
    close: () => void closed.push(name),
  });
  let made = (_connection: PipelineConnection): void => {};
  const openPipeline = () => new Promise<PipelineConnection>((resolve) => (made = resolve));
  const driver = { openPipeline } as unknown as RedisDriver;
  const timeouts = new CallTimeouts(new FakeClock(), 1000);
  const ack = new ReplicaAcks(driver, connection("first"), timeouts, () => 1, 100);
  const replacing = ack.replace();
  made(connection("second"));
  await replacing;
  expect(closed).toEqual(["first"]);
  const late = ack.replace().catch(() => {});
  ack.close();
  made(connection("third"));
  await late;
  await Promise.resolve();
  expect(closed).toEqual(["first", "second", "third"]);
});

test("a cell that somebody begins to watch while nothing is pushed is read again and again", async () => {
  const clock = new FakeClock();
  let version = 1;
  const driver = { offline: false, call: async () => [String(version), "value"] } as unknown as RedisDriver;
  const timeouts = new CallTimeouts(clock, 1000);
  const away = (): Promise<SubscriberConnection> => Promise.reject(new Error("away"));
  const { subscription } = subscriptionOn(away);
  const scripts = new Scripts(driver, timeouts);
  const cells = new RedisCells({ driver, scripts, timeouts, clock, prefix: "", idleMs: 1, subscription });
  const seen: number[] = [];
  cells.watch("cell", (cell) => seen.push(cell.version));
  for (version = 2; version < 5; version += 1) await clock.advance(2000);
  expect(seen).toEqual(expect.arrayContaining([2, 3, 4]));
  cells.close();
});

test("watched cells are read while nothing is pushed, once when something is again, and not otherwise", async () => {
  let [away, version, reads] = [false, 1, 0];
  let answers = true;
  const { clock, subscription } = subscriptionOn(async () => {
    if (away) throw new Error("ECONNREFUSED");
    return subscriber(() => answers).connection;
  });
  await subscription.open("channel", () => {});
  const driver = {
    offline: false,
    keyPrefix: "",
    call: async () => {
      reads += 1;
      return [String(version), "value"];
    },
  } as unknown as RedisDriver;
  const timeouts = new CallTimeouts(clock, 1000);
  const scripts = new Scripts(driver, timeouts);
  const cells = new RedisCells({ driver, scripts, timeouts, clock, prefix: "", idleMs: 1, subscription });
  const seen: number[] = [];
  const unwatch = cells.watch("cell", (cell) => seen.push(cell.version));
  const after = async (ms: number): Promise<number> => {
    const before = reads;
    await clock.advance(ms);
    return reads - before;
  };
  expect(await after(HOUR_MS)).toBe(0);
  [answers, away, version] = [false, true, 2];
  expect(await after(60_000)).toBeGreaterThan(50);
  expect(seen).toContain(2);
  [answers, away, version] = [true, false, 3];
  await clock.advance(10_000);
  expect(seen.at(-1)).toBe(3);
  expect(await after(HOUR_MS)).toBe(0);
  // Nobody watches any more: nothing is read either, whatever becomes of the connection.
  unwatch();
  [answers, away] = [false, true];
  subscription.expectPush();
  expect(await after(60_000)).toBe(0);
  expect(subscription.live).toBe(false);
  const again = cells.watch("cell", () => {});
  expect(await after(10_000)).toBeGreaterThan(5);
  again();
  expect(await after(60_000)).toBe(0);
  cells.close();
  subscription.close();
  expect(clock.pending).toBe(0);
});
