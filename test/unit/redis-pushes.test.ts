import { describe, expect, test } from "vitest";
import type { ClaimRef } from "../../src/core/engine.js";
import { EngineRefusedError, UnsupportedError } from "../../src/core/errors.js";
import { CallTimeouts } from "../../src/engine-kit/call-timeouts.js";
import { AckedGrants, openPipelineInTime, ReplicaAcks } from "../../src/engines/redis/ack.js";
import { type CellsOptions, RedisCells } from "../../src/engines/redis/cells.js";
import type { PipelineConnection, RedisDriver, SubscriberConnection } from "../../src/engines/redis/driver.js";
import { Subscription } from "../../src/engines/redis/events.js";
import { LAYOUTS } from "../../src/engines/redis/layouts.js";
import { RedissonLatches } from "../../src/engines/redis/redisson-latches.js";
import { type ScriptAnswers, Scripts } from "../../src/engines/redis/scripts.js";
import { Wakes } from "../../src/engines/redis/wakes.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** The connection on which Redis pushes, who hears what on it, and grants that count when replicas have them. */

const LIMIT_MS = 1000;
const KEPT_MS = 4000;
const OPENED_MAX = 10_000;

type Opened = {
  readonly done: string[];
  readonly cancelled: AbortSignal;
  message(channel: string, text: string): void;
  end(): void;
};

/** A server that is subscribed to, as the test says. */
function subscribed() {
  const clock = new FakeClock();
  const opened: Opened[] = [];
  const told: string[] = [];
  const state = {
    opens: async (): Promise<void> => {},
    answers: async (_call: string): Promise<void> => {},
    tellsEnd: false,
  };
  const driver = {
    openSubscriber: async (
      onMessage: (channel: string, message: string) => void,
      onEnd: () => void,
      cancelled: AbortSignal,
    ): Promise<SubscriberConnection> => {
      const done: string[] = [];
      opened.push({ done, cancelled, message: onMessage, end: onEnd });
      // Whoever tries again without a pause comes no further.
      if (opened.length > OPENED_MAX) await never();
      await state.opens();
      const call = (text: string) => {
        done.push(text);
        return state.answers(text);
      };
      return {
        subscribe: (channel) => call(`+${channel}`),
        unsubscribe: (channel) => call(`-${channel}`),
        ping: () => call("ping"),
        // With some libraries the end is told while it is closed, with others later or not at all.
        close: () => {
          done.push("close");
          if (state.tellsEnd) onEnd();
        },
      };
    },
  } as unknown as RedisDriver;
  const warn = (message: string): void => void told.push(message);
  const subscription = new Subscription({ driver, clock, chance: new SeededChance(1), callTimeoutMs: LIMIT_MS, warn });
  subscription.onChange((live) => told.push(live ? "back" : "down"));
  return { clock, opened, told, state, subscription };
}

const never = (): Promise<never> => new Promise(() => {});

/** So many promises later. */
async function after(steps: number): Promise<void> {
  for (let n = 0; n < steps; n += 1) await Promise.resolve();
}

describe("a subscription", () => {
  test("gives each message to whoever listens to its channel, as long as somebody does", async () => {
    const { opened, subscription } = subscribed();
    const heard: string[] = [];
    await subscription.open("a", (text) => heard.push(`a ${text}`));
    await subscription.add("b", (text) => heard.push(`b ${text}`));
    const [first] = opened as [Opened];
    for (const channel of ["a", "b", "c"]) first.message(channel, "1");
    await subscription.remove("b");
    for (const channel of ["a", "b"]) first.message(channel, "2");
    expect(heard).toEqual(["a 1", "b 1", "a 2"]);
    expect(first.done).toEqual(["+a", "+b", "-b"]);
    subscription.close();
    expect([first.done.at(-1), subscription.live]).toEqual(["close", false]);
  });

  test("that ends is told once, and is made again with all channels, which is told, too; an older one that ends is nothing", async () => {
    const { clock, opened, told, subscription } = subscribed();
    await subscription.open("a", () => {});
    await subscription.add("b", () => {});
    const [first] = opened as [Opened];
    first.end();
    expect([told, subscription.live]).toEqual([["down"], false]);
    // What is added and removed meanwhile needs no connection.
    await subscription.add("c", () => {});
    await subscription.remove("b");
    first.end();
    await clock.advance(100);
    expect([told, subscription.live, opened.length]).toEqual([["down", "back"], true, 2]);
    expect(opened[1]?.done.toSorted()).toEqual(["+a", "+c"]);
    first.end();
    await clock.advance(60_000);
    expect([told, opened.length]).toEqual([["down", "back"], 2]);
    subscription.close();
    opened[1]?.end();
    await clock.advance(60_000);
    expect([told.length, opened.length, clock.pending]).toEqual([2, 2, 0]);
  });

  test.each([
    ["added and removed", ["c"], ["a", "c"]],
    ["removed", [], ["a"]],
  ])("channels that are %s while it is made are subscribed to and left", async (_what, added, left) => {
    for (let step = 0; step < 30; step += 1) {
      const { clock, opened, state, subscription } = subscribed();
      await subscription.open("a", () => {});
      await subscription.add("b", () => {});
      opened[0]?.end();
      let changed: Promise<unknown> | undefined;
      state.opens = async () =>
        void after(step).then(
          () =>
            (changed = Promise.all([...added.map((one) => subscription.add(one, () => {})), subscription.remove("b")])),
        );
      await clock.advance(100);
      await changed;
      const now = new Set<string>();
      for (const call of opened[1]?.done ?? []) {
        if (call.startsWith("+")) now.add(call.slice(1));
        if (call.startsWith("-")) now.delete(call.slice(1));
      }
      expect([...now].toSorted(), `step ${step}`).toEqual(left);
      subscription.close();
    }
  });

  test("one that ends while it is made is tried again", async () => {
    const { clock, opened, told, state, subscription } = subscribed();
    state.answers = async () => opened.at(-1)?.end();
    await expect(subscription.open("a", () => {})).rejects.toThrow(/ended while/);
    expect([subscription.live, opened[0]?.done]).toEqual([false, ["+a", "close"]]);
    expect(opened[0]?.cancelled.aborted).toBe(true);
    subscription.close();
    const again = subscribed();
    await again.subscription.open("a", () => {});
    again.opened[0]?.end();
    again.state.answers = async () => again.opened.at(-1)?.end();
    await again.clock.advance(2000);
    expect(again.subscription.live).toBe(false);
    expect(again.opened.length).toBeGreaterThan(2);
    again.state.answers = async () => {};
    await again.clock.advance(2000);
    expect([again.subscription.live, again.told.at(-1)]).toEqual([true, "back"]);
    again.subscription.close();
    expect([told, clock.pending]).toEqual([[], 0]);
  });

  test("that is refused is refused; one that is too slow is tried again, and what opens too late is closed", async () => {
    const refused = subscribed();
    refused.state.answers = () => Promise.reject(new Error("NOPERM"));
    await expect(refused.subscription.open("a", () => {})).rejects.toThrow("NOPERM");
    expect(refused.opened[0]?.done).toEqual(["+a", "close"]);
    await refused.clock.advance(60_000);
    expect(refused.opened).toHaveLength(1);
    const { clock, opened, told, state, subscription } = subscribed();
    let arrive = (): void => {};
    state.opens = () => new Promise((resolve) => (arrive = resolve));
    const opening = subscription.open("a", () => {});
    await clock.advance(LIMIT_MS);
    await opening;
    expect([subscription.live, opened[0]?.cancelled.aborted]).toEqual([false, true]);
    arrive();
    await settle();
    expect(opened[0]?.done).toEqual(["close"]);
    state.opens = async () => {};
    await clock.advance(1000);
    expect([subscription.live, told]).toEqual([true, ["back"]]);
    subscription.close();
    expect(clock.pending).toBe(0);
  });

  test("one that is too slow has failed once: that the next one fails is said, and one that ended unmade was never lost", async () => {
    const { clock, opened, told, state, subscription } = subscribed();
    state.opens = never;
    const opening = subscription.open("a", () => {});
    opened[0]?.end();
    await clock.advance(LIMIT_MS);
    await opening;
    expect([told, opened.length]).toEqual([[], 1]);
    state.opens = () => Promise.reject(new Error("ECONNREFUSED"));
    // The pause after one failure: from a half to all of 50 ms.
    await clock.advance(24);
    expect([told, opened.length]).toEqual([[], 1]);
    await clock.advance(26);
    expect([told, opened.length]).toEqual([[expect.stringMatching(/cannot be opened \(ECONNREFUSED\)/)], 2]);
    subscription.close();
    expect(clock.pending).toBe(0);
  });

  test("pauses grow while the server is away, and begin anew when it was there; from the second on it is said, once", async () => {
    const { clock, opened, told, state, subscription } = subscribed();
    await subscription.open("a", () => {});
    const pauses = async (): Promise<number[]> => {
      const at: number[] = [clock.now()];
      const before = opened.length;
      opened.at(-1)?.end();
      state.opens = async () => {
        at.push(clock.now());
        throw new Error("ECONNREFUSED");
      };
      while (opened.length < before + 8) await clock.advance(5);
      state.opens = async () => {};
      await clock.advance(2000);
      return at.slice(1).map((one, n) => one - (at[n] ?? 0));
    };
    const first = await pauses();
    expect(first[0]).toBeLessThanOrEqual(25);
    for (const [n, ms] of first.entries()) expect(ms).toBeLessThanOrEqual(Math.min(1000, 25 * 2 ** n) + 5);
    expect(first.at(-1)).toBeGreaterThan(400);
    expect((await pauses())[0]).toBeLessThanOrEqual(30);
    const said = expect.stringMatching(/cannot be opened \(ECONNREFUSED\)/);
    expect(told).toEqual(["down", said, "back", "down", said, "back"]);
    subscription.close();
  });

  test("is asked whether it is there while somebody waits for a push or watches a cell, and nothing came", async () => {
    const { clock, opened, subscription } = subscribed();
    await subscription.open("a", () => {});
    const [first] = opened as [Opened];
    const pings = async (ms: number): Promise<number> => {
      first.done.length = 0;
      await clock.advance(ms);
      return first.done.filter((call) => call === "ping").length;
    };
    expect(await pings(60_000)).toBe(0);
    subscription.expectPush();
    subscription.expectPush();
    expect(await pings(LIMIT_MS - 1)).toBe(0);
    expect(await pings(1)).toBe(1);
    expect(await pings(60_000)).toBe(0);
    // What was pushed says that it is there.
    subscription.expectPush();
    first.message("a", "hello");
    expect(await pings(LIMIT_MS)).toBe(0);
    subscription.expectPush();
    expect(await pings(LIMIT_MS)).toBe(1);
    await subscription.add("b", () => {});
    expect(await pings(10 * LIMIT_MS)).toBe(10);
    await subscription.remove("b");
    expect(await pings(2 * LIMIT_MS)).toBeLessThanOrEqual(1);
    expect(await pings(60_000)).toBe(0);
    subscription.close();
    subscription.expectPush();
    expect(clock.pending).toBe(0);
  });

  test.each([false, true])(
    "watched cells are asked for on the next connection, too (its end is told: %s)",
    async (tellsEnd) => {
      const { clock, opened, state, told, subscription } = subscribed();
      state.tellsEnd = tellsEnd;
      await subscription.open("a", () => {});
      await subscription.add("b", () => {});
      // For longer than it takes until the last one would have been asked.
      state.opens = () => Promise.reject(new Error("ECONNREFUSED"));
      opened[0]?.end();
      await clock.advance(3 * LIMIT_MS);
      state.opens = async () => {};
      await clock.advance(LIMIT_MS);
      expect(told.splice(0).at(-1)).toBe("back");
      const next = opened.at(-1);
      state.answers = never;
      await clock.advance(2 * LIMIT_MS);
      expect(told.slice(0, 2)).toEqual([expect.stringMatching(/said nothing for 1000 ms and is replaced/), "down"]);
      expect(next?.done.slice(-2)).toEqual(["ping", "close"]);
      const before = told.length;
      state.answers = async () => {};
      await clock.advance(3 * LIMIT_MS);
      expect([subscription.live, told.slice(before)]).toEqual([true, ["back"]]);
      // Lost once, so there is one connection.
      const { length } = opened;
      await clock.advance(60_000);
      expect(opened).toHaveLength(length);
      subscription.close();
      expect([told.slice(before), opened.at(-1)?.done.at(-1), clock.pending]).toEqual([["back"], "close", 0]);
    },
  );

  test("of which several calls are not answered is lost once; what is asked late of an older one is nothing", async () => {
    const { clock, opened, told, state, subscription } = subscribed();
    await subscription.open("a", () => {});
    state.answers = (call) => (call === "+a" ? Promise.resolve() : never());
    const failed = ["b", "c"].map((one) => expect(subscription.add(one, () => {})).rejects.toThrow(/no answer/));
    await clock.advance(LIMIT_MS / 2);
    failed.push(expect(subscription.remove("b")).rejects.toThrow(/no answer/));
    await clock.advance(LIMIT_MS / 2);
    state.answers = async () => {};
    await clock.advance(LIMIT_MS);
    await Promise.all(failed);
    const replaced = expect.stringMatching(/said nothing for 1000 ms and is replaced/);
    expect([told, opened.length, subscription.live]).toEqual([[replaced, "down", "back"], 2, true]);
    expect(opened[1]?.done.filter((call) => call !== "ping")).toEqual(["+a", "+c"]);
    subscription.close();
    expect(clock.pending).toBe(0);
  });

  test("that is closed while it is made, or while it is asked, is closed and tells nothing", async () => {
    const { clock, opened, told, state, subscription } = subscribed();
    let arrive = (): void => {};
    await subscription.open("a", () => {});
    state.opens = () => new Promise((resolve) => (arrive = resolve));
    opened[0]?.end();
    await clock.advance(100);
    subscription.close();
    arrive();
    await settle();
    expect(opened[1]?.done.filter((call) => call === "close")).not.toEqual([]);
    // The second attempt in a row that fails would be told.
    const failing = subscribed();
    await failing.subscription.open("a", () => {});
    let refuse = (_cause: Error): void => {};
    failing.state.opens = () => new Promise((_, reject) => (refuse = reject));
    failing.opened[0]?.end();
    await failing.clock.advance(100);
    refuse(new Error("ECONNREFUSED"));
    await failing.clock.advance(100);
    expect(failing.opened).toHaveLength(3);
    failing.subscription.close();
    refuse(new Error("ECONNREFUSED"));
    await failing.clock.advance(60_000);
    expect([failing.told, failing.opened.length, failing.clock.pending]).toEqual([["down"], 3, 0]);
    const asked = subscribed();
    await asked.subscription.open("a", () => {});
    asked.state.answers = never;
    asked.subscription.expectPush();
    await asked.clock.advance(LIMIT_MS);
    asked.subscription.close();
    await asked.clock.advance(60_000);
    expect([told, asked.told, asked.opened.length, clock.pending, asked.clock.pending]).toEqual([
      ["down"],
      [],
      1,
      0,
      0,
    ]);
    for (let step = 0; step < 20; step += 1) {
      const late = subscribed();
      await late.subscription.open("a", () => {});
      late.opened[0]?.end();
      late.state.opens = async () => void after(step).then(() => late.subscription.close());
      await late.clock.advance(100);
      expect(late.opened).toHaveLength(2);
      expect([late.subscription.live, late.clock.pending], `step ${step}`).toEqual([false, 0]);
      for (const { done } of late.opened.slice(1)) expect(done, `step ${step}`).toContain("close");
    }
  });
});

describe("who waits for a name with a channel of its own", () => {
  async function waking(layout: "plain" | "redisson") {
    const made = subscribed();
    await made.subscription.open("shared", () => {});
    const woken: string[] = [];
    const wakes = new Wakes({
      layout: LAYOUTS[layout],
      shared: "shared",
      subscription: made.subscription,
      clock: made.clock,
      woken: (name) => woken.push(name),
    });
    return { ...made, wakes, woken, channel: "redisson_lock__channel:{n}" };
  }

  test("is woken when it listens and by each message, for as long as it asks", async () => {
    const { clock, opened, wakes, woken, channel } = await waking("redisson");
    const [connection] = opened as [Opened];
    expect(wakes.live).toBe(true);
    wakes.expect("n");
    await settle();
    expect([woken, connection.done]).toEqual([["n"], ["+shared", `+${channel}`]]);
    connection.message(channel, "0");
    expect(woken).toEqual(["n", "n"]);
    // Who asks again is not subscribed again, and stays.
    for (let n = 0; n < 4; n += 1) {
      await clock.advance(KEPT_MS - 100);
      wakes.expect("n");
    }
    await clock.advance(KEPT_MS - 1);
    const calls = (): string[] => connection.done.filter((call) => call !== "ping").slice(2);
    expect(calls()).toEqual([]);
    await clock.advance(KEPT_MS + 1);
    expect(calls()).toEqual([`-${channel}`]);
    connection.message(channel, "0");
    expect(woken).toHaveLength(2);
    expect(clock.pending).toBe(0);
    wakes.expect("n");
    await settle();
    expect([calls().at(-1), woken.length]).toEqual([`+${channel}`, 3]);
    wakes.close();
    await clock.advance(60_000);
    expect(calls()).toHaveLength(2);
  });

  test("of several names those are left that nobody asks for", async () => {
    const { clock, opened, wakes } = await waking("redisson");
    for (const name of ["a", "b"]) wakes.expect(name);
    await clock.advance(KEPT_MS - 1);
    wakes.expect("b");
    await clock.advance(2);
    const left = (): string[] => opened[0]?.done.filter((call) => call.startsWith("-")) ?? [];
    expect(left()).toEqual(["-redisson_lock__channel:{a}"]);
    await clock.advance(2 * KEPT_MS);
    expect(left()).toHaveLength(2);
    wakes.close();
  });

  test("a layout with one channel for all has no other, and expects its pushes there", async () => {
    const { clock, opened, wakes, woken } = await waking("plain");
    wakes.expect("n");
    await clock.advance(LIMIT_MS);
    expect([opened[0]?.done, woken]).toEqual([["+shared", "ping"], []]);
    expect(wakes.pushOf("n")).toEqual({ channel: "shared", message: "n" });
    // As Redisson does it: a name that has a hash tag gets no other.
    expect(LAYOUTS.redisson.push("a{b}", "shared").channel).toBe("redisson_lock__channel:a{b}");
    const { tokenKey } = LAYOUTS["redisson-fenced"];
    expect(["n", "a{b}"].map(tokenKey)).toEqual(["redisson_lock_token:{n}", "redisson_lock_token:a{b}"]);
    const deaf = new Wakes({ layout: LAYOUTS.redisson, shared: "s", subscription: null, clock, woken: () => {} });
    const before = clock.pending;
    deaf.expect("n");
    expect([deaf.live, clock.pending]).toEqual([false, before]);
    deaf.close();
  });
});

describe("cells", () => {
  async function watching(of: Partial<CellsOptions & RedisDriver> = {}) {
    const made = subscribed();
    await made.subscription.open("own", () => {});
    const calls: (readonly string[])[] = [];
    let reply: unknown = ["3", "v"];
    const call = async (key: string, command: readonly string[]): Promise<unknown> => {
      calls.push([key, ...command]);
      if (reply instanceof Error) throw reply;
      return reply;
    };
    const { topology = "single", keyPrefix = "lib:" } = of;
    const driver = { topology, keyPrefix, offline: false, call } as unknown as RedisDriver;
    const { clock } = made;
    const { subscription = made.subscription } = of;
    const timeouts = new CallTimeouts(clock, LIMIT_MS);
    const scripts = new Scripts(driver, timeouts);
    const options: CellsOptions = { driver, scripts, timeouts, clock, prefix: "p:", idleMs: 77, subscription };
    const [cells, latches] = [new RedisCells(options), new RedissonLatches(options)];
    return { ...made, calls, cells, latches, answer: (next: unknown) => void (reply = next) };
  }

  test("are read and written at their key, and what was answered is read whatever the value holds", async () => {
    const { calls, cells, answer } = await watching();
    expect(await cells.read("c")).toEqual({ version: 3, value: "v" });
    expect(calls.at(-1)).toEqual(["p:cell:c", "hmget", "p:cell:c", "version", "value"]);
    answer([null, null]);
    expect(await cells.read("c")).toEqual({ version: 0, value: null });
    answer(new Error("WRONGTYPE x"));
    await expect(cells.read("c")).rejects.toBeInstanceOf(EngineRefusedError);
    answer("written 4\na b\nc");
    const write = { name: "c", operation: "o", expected: 3, value: "x" };
    expect(await cells.write(write)).toEqual({ kind: "written", cell: { version: 4, value: "a b\nc" } });
    expect(calls.at(-1)?.slice(4)).toEqual(["p:cell:c", "o", "3", "1", "x", "lib:p:cell:c", "60000", "77"]);
    answer("conflict 0");
    expect(await cells.write({ ...write, value: null })).toEqual({
      kind: "conflict",
      cell: { version: 0, value: null },
    });
    expect(calls.at(-1)?.slice(7, 9)).toEqual(["0", ""]);
    answer("gone 0");
    await expect(cells.write(write)).rejects.toThrow(/means nothing/);
  });

  test("are told what is pushed on their channel, and left when nobody watches", async () => {
    const { calls, opened, cells } = await watching();
    const seen: unknown[] = [];
    const unwatch = cells.watch("c", (cell) => seen.push(cell));
    await settle();
    const [connection] = opened as [Opened];
    expect(connection.done).toEqual(["+own", "+lib:p:cell:c"]);
    connection.message("lib:p:cell:c", "5\nnew");
    connection.message("lib:p:cell:c", "0");
    await settle();
    expect(seen).toEqual([
      { version: 5, value: "new" },
      { version: 0, value: null },
    ]);
    unwatch();
    await settle();
    expect([connection.done.at(-1), calls]).toEqual(["-lib:p:cell:c", []]);
  });

  test("are polled where nothing is pushed, once a second, all by one timer, and for as long as somebody watches", async () => {
    const { clock, calls, cells, answer } = await watching({ subscription: null });
    const seen: string[] = [];
    const [a, b] = ["a", "b"].map((name) => cells.watch(name, (cell) => seen.push(`${name} ${cell.version}`)));
    await clock.advance(999);
    expect(calls).toEqual([]);
    await clock.advance(1);
    expect(calls.map(([key]) => key)).toEqual(["p:cell:a", "p:cell:b"]);
    expect(seen).toEqual(["a 3", "b 3"]);
    answer(new Error("ECONNRESET"));
    await clock.advance(1000);
    answer(["4", "v"]);
    a?.();
    await clock.advance(1000);
    expect([calls.length, seen]).toEqual([5, ["a 3", "b 3", "b 4"]]);
    b?.();
    await clock.advance(LIMIT_MS);
    expect([calls.length, clock.pending]).toEqual([5, 0]);
    cells.watch("c", () => {});
    cells.close();
    await clock.advance(LIMIT_MS);
    expect([calls.length, clock.pending]).toEqual([5, 0]);
  });

  test("that nobody watches are nothing to a connection that is lost", async () => {
    const { clock, opened, subscription, cells } = await watching();
    cells.watch("c", () => {})();
    opened[0]?.end();
    subscription.close();
    expect(clock.pending).toBe(0);
  });

  test("Redisson's latches are counts at exactly their names, and none is an open latch", async () => {
    for (const topology of ["single", "cluster"] as const) {
      const { calls, latches, answer } = await watching({ topology, keyPrefix: "" });
      const latch = (left: number) => ({ version: left, value: JSON.stringify({ latch: { left } }) });
      for (const [reply, left] of [
        ["3", 3],
        [Buffer.from("2"), 2],
        [null, 0],
      ] as const) {
        answer(reply);
        expect(await latches.read("l")).toEqual(latch(left));
      }
      expect(calls.at(-1)).toEqual(["l", "get", "l"]);
      for (const wrong of ["-1", "1.5", "text", "99999999999999999999"]) {
        answer(wrong);
        await expect(latches.read("l"), wrong).rejects.toBeInstanceOf(UnsupportedError);
      }
      answer(new Error("WRONGTYPE x"));
      await expect(latches.read("l")).rejects.toBeInstanceOf(EngineRefusedError);
      const write = { name: "l", operation: "o", expected: 3, value: latch(2).value };
      answer("written 2");
      expect(await latches.write(write)).toEqual({ kind: "written", cell: latch(2) });
      const channel = "redisson_countdownlatch__channel__{l}";
      const beside = "p:operation:{l}:o";
      const sharded = topology === "cluster" ? "1" : "0";
      expect(calls.at(-1)?.slice(4)).toEqual(["l", beside, "3", "2", channel, "60000", sharded]);
      answer("conflict 5");
      expect(await latches.write({ ...write, value: null })).toEqual({ kind: "conflict", cell: latch(5) });
      expect(calls.at(-1)?.slice(6, 8)).toEqual(["3", "0"]);
      answer("other 5");
      await expect(latches.write(write)).rejects.toThrow(/means nothing/);
    }
  });

  test("a message of Redisson's latch has no count, so it is read", async () => {
    const { opened, calls, latches, answer } = await watching({ keyPrefix: "" });
    const seen: number[] = [];
    latches.watch("l", (cell) => seen.push(cell.version));
    await settle();
    expect([opened[0]?.done.at(-1), calls]).toEqual(["+redisson_countdownlatch__channel__{l}", []]);
    answer("1");
    opened[0]?.message("redisson_countdownlatch__channel__{l}", "0");
    await settle();
    expect([calls, seen]).toEqual([[["l", "get", "l"]], [1]]);
    latches.close();
  });
});

describe("acknowledgements", () => {
  const granted = { kind: "granted", leftMs: 1000, token: 1, floor: 1 } as const;
  const queued = { kind: "queued", token: 1, nextMs: 1, ahead: "other" } as const;
  const missing = { acked: 0, needed: 1 };
  const ref = { name: "name", id: "id" };

  function grantsOf() {
    const released: string[] = [];
    const grants = new AckedGrants(async ({ id }: ClaimRef) => {
      released.push(id);
      return "released";
    });
    return { grants, released };
  }

  test("pitfall 37: a claim that waits is not acknowledged, and its client must ask before it lets it go on", async () => {
    const { grants, released } = grantsOf();
    expect(await grants.confirmClaim(ref, queued)).toEqual({ kind: "queued", token: 1, nextMs: 1 });
    expect(await grants.confirmRenewal(ref, queued, missing)).toEqual(queued);
    expect(released).toEqual([]);
    expect(await grants.confirmRenewal(ref, granted, missing)).toEqual({ kind: "gone" });
    expect(released).toEqual(["id"]);
    expect(await grants.confirmClaim(ref, { kind: "busy", nextMs: 1 })).toEqual({ kind: "busy", nextMs: 1 });
  });

  test("pitfall 37: who was handed over with an acknowledgement keeps the lease that the replicas know", async () => {
    const { grants, released } = grantsOf();
    await grants.confirmClaim(ref, queued);
    expect(await grants.confirmRenewal(ref, granted, null)).toEqual(granted);
    const answer = await grants.confirmRenewal(ref, granted, missing);
    expect(answer).toMatchObject({ kind: "unknown", cause: { message: expect.stringContaining("0 of 1 replicas") } });
    expect(released).toEqual([]);
    expect(await grants.confirmRenewal(undefined, granted, missing)).toEqual(granted);
  });

  test("pitfall 37: a claim that too few replicas have is taken back, and fails with the numbers", async () => {
    const { grants, released } = grantsOf();
    const failed = grants.confirmClaim(ref, { kind: "missing acks", acked: 1, needed: 2 });
    await expect(failed).rejects.toBeInstanceOf(EngineRefusedError);
    await expect(failed).rejects.toThrow(/1 of 2 replicas/);
    expect(released).toEqual(["id"]);
  });

  function pipelined(replies: () => readonly unknown[]) {
    const sent: (readonly (readonly string[])[])[] = [];
    const connection: PipelineConnection = {
      pipeline: async (_key, commands) => {
        sent.push(commands);
        return replies();
      },
      close: () => {},
    };
    const timeouts = new CallTimeouts(new FakeClock(), LIMIT_MS);
    const acks = new ReplicaAcks({ topology: "single" } as RedisDriver, connection, timeouts, () => 1, 700);
    const ask = (): Promise<ScriptAnswers> =>
      new Promise((resolve, reject) => acks.answers("claim", ["key"], [], resolve, reject));
    return { sent, ask };
  }

  test("a script that the server never knows, a WAIT without an answer and an answer that is no text are errors", async () => {
    const unknown = pipelined(() => [new Error("NOSCRIPT No matching script."), 1]);
    await expect(unknown.ask()).rejects.toThrow("NOSCRIPT");
    expect(unknown.sent).toHaveLength(2);
    await expect(pipelined(() => ["did"]).ask()).rejects.toThrow();
    await expect(pipelined(() => [7, 1]).ask()).rejects.toThrow(/where a text/);
    expect(await pipelined(() => ["did", 2]).ask()).toEqual({ texts: ["did"], missingAcks: null });
  });

  test("a connection for WAIT that does not open in time is cancelled, and closed should it open later", async () => {
    const clock = new FakeClock();
    const signals: AbortSignal[] = [];
    let arrive: (connection: PipelineConnection) => void = () => {};
    const openPipeline = (cancelled: AbortSignal): Promise<PipelineConnection> => {
      signals.push(cancelled);
      return new Promise((resolve) => (arrive = resolve));
    };
    const opening = openPipelineInTime(new CallTimeouts(clock, LIMIT_MS), { openPipeline } as unknown as RedisDriver);
    const failed = expect(opening).rejects.toThrow(/no answer within/);
    await clock.advance(LIMIT_MS);
    await failed;
    expect(signals[0]?.aborted).toBe(true);
    let closed = 0;
    arrive({ pipeline: never, close: () => (closed += 1) });
    await settle();
    expect(closed).toBe(1);
  });

  test("one that takes another's place while all is closed is closed, at whatever step", async () => {
    for (let step = 0; step < 15; step += 1) {
      const closed: string[] = [];
      const connection = (name: string): PipelineConnection => ({
        pipeline: never,
        close: () => void closed.push(name),
      });
      const driver = { openPipeline: async () => connection("second") } as unknown as RedisDriver;
      const acks = new ReplicaAcks(
        driver,
        connection("first"),
        new CallTimeouts(new FakeClock(), LIMIT_MS),
        () => 1,
        1,
      );
      const replaced = acks.replace().catch(() => {});
      for (let n = 0; n < step; n += 1) await Promise.resolve();
      acks.close();
      await replaced;
      await settle();
      expect(new Set(closed), `step ${step}`).toEqual(new Set(["first", "second"]));
    }
  });
});
