import { describe, expect, test } from "vitest";
import { EngineUnavailableError } from "../../src/core/errors.js";
import type { NameState } from "../../src/core/inspect.js";
import { pageHtml } from "../../src/live/html.js";
import { liveView } from "../../src/live/index.js";
import { Picture } from "../../src/live/picture.js";
import { Viewer } from "../../src/live/viewer.js";
import { settle } from "../../src/testing/fake-clock.js";
import { get, liveRig, Reader } from "./live-rig.js";
import { never } from "./rig.js";

const open = async (made: Awaited<ReturnType<typeof liveRig>>): Promise<Reader> => {
  const reader = new Reader(await get(made.view, "/locks/events"));
  await made.clock.advance(0);
  await reader.read();
  return reader;
};

describe("what a viewer is told", () => {
  test("holders in order of their tokens, waiters in order of arrival, as inspect says", async () => {
    const made = await liveRig();
    const { locks } = await made.open({ label: "worker" });
    const hold = await locks.mutex("stock").acquire();
    const waits = [locks.mutex("stock").acquire(), locks.mutex("stock").acquire()];
    await settle();
    const reader = await open(made);
    const state = await made.locks.client.state("stock");
    const view = reader.names.get("stock");
    expect(view?.holders.map(({ token, label, pid }) => [token, label, pid])).toEqual([
      [hold.token, "worker", process.pid],
    ]);
    expect(view).toMatchObject({ capacity: 1, used: 1, holderCount: 1, waiterCount: 2, lastToken: state?.lastToken });
    expect(JSON.stringify(reader.updates)).not.toContain(state?.holders[0]?.id);
    await hold.release();
    for (const wait of waits) await (await wait).release();
  });

  test("then only what changes: names that came, went or changed, and leases that were renewed", async () => {
    const made = await liveRig();
    const { locks } = await made.open();
    const hold = await locks.mutex("a").acquire();
    const reader = await open(made);
    expect([...reader.names.keys()]).toEqual(["a"]);

    await made.clock.advance(1_000);
    const [still] = await reader.read();
    expect(still).not.toHaveProperty("set");
    expect(still).not.toHaveProperty("leases");

    // Renewed after a third of its lease.
    await made.clock.advance(3_000);
    const leases = (await reader.read()).flatMap((update) => update.leases ?? []);
    const key = reader.names.get("a")?.holders[0]?.key;
    expect(leases.map(([claim]) => claim)).toEqual([key]);
    expect(leases[0]?.[1]).toBeGreaterThan(reader.names.get("a")?.holders[0]?.until ?? Infinity);

    const second = await locks.mutex("b").acquire();
    await made.clock.advance(1_000);
    expect((await reader.read()).flatMap(({ set = [] }) => set.map(({ name }) => name))).toEqual(["b"]);

    await hold.release();
    await made.clock.advance(1_000);
    expect((await reader.read()).flatMap(({ gone = [] }) => gone)).toEqual(["a"]);
    await second.release();
  });

  test("since when a claim is seen, where the store does not say since when it is there", async () => {
    const made = await liveRig();
    const { locks } = await made.open();
    const hold = await locks.mutex("a").acquire();
    const reader = await open(made);
    const first = reader.names.get("a")?.holders[0];
    await made.clock.advance(1_000);
    await reader.read();
    expect(reader.names.get("a")?.holders[0]?.since).toBe(first?.since);
    await hold.release();
  });

  test("a deadlock of three, and nothing once it is solved", async () => {
    const made = await liveRig();
    const stop = new AbortController();
    const { signal } = stop;
    const ends: Promise<unknown>[] = [];
    for (const [mine, next] of [
      ["a", "b"],
      ["b", "c"],
      ["c", "a"],
    ] as const) {
      const { locks } = await made.open({ label: `holds ${mine}`, detectDeadlockAfterMs: 3_600_000 });
      const done = locks.mutex(mine).using(async () => {
        await made.clock.advance(10);
        await locks.mutex(next).using({ signal }, () => {});
      });
      ends.push(done.catch(() => {}));
      await settle();
    }
    await made.clock.advance(100);
    const reader = await open(made);
    const deadlocks = reader.updates.findLast((update) => update.deadlocks !== undefined)?.deadlocks;
    expect(deadlocks).toHaveLength(1);
    const waits = [...reader.names.values()].flatMap(({ waiters }) => waiters.map(({ key }) => key));
    expect(new Set(deadlocks?.[0])).toEqual(new Set(waits));
    for (const { waiters } of reader.names.values()) expect(waiters[0]?.holds).toHaveLength(1);

    stop.abort();
    await Promise.all(ends);
    await made.clock.advance(1_000);
    expect((await reader.read()).filter(({ deadlocks }) => deadlocks?.length === 0)).toHaveLength(1);
  });
});

describe("one loop for all viewers", () => {
  test("nobody looks: the store is not read", async () => {
    const { clock, reads } = await liveRig();
    await clock.advance(600_000);
    expect(reads).toEqual({ all: 0, name: 0 });
    expect(clock.pending).toBeLessThanOrEqual(1);
  });

  test.each([1, 10])("with %i viewers it is read once a second", async (viewers) => {
    const made = await liveRig();
    const readers = await Promise.all(Array.from({ length: viewers }, () => open(made)));
    const before = made.reads.all;
    await made.clock.advance(60_000);
    expect(made.reads.all - before).toBe(60);
    // The probe of the store's own page.
    expect(made.reads.name).toBeLessThanOrEqual(7);
    for (const reader of readers) expect((await reader.read()).length).toBeGreaterThanOrEqual(60);
  });

  test("it pauses when the last one leaves, and goes on with the next", async () => {
    const made = await liveRig();
    const [one, two] = [await open(made), await open(made)];
    await one.leave();
    const before = made.reads.all;
    await made.clock.advance(3_000);
    expect(made.reads.all - before).toBe(3);
    await two.leave();
    const paused = made.reads.all;
    await made.clock.advance(60_000);
    expect(made.reads.all).toBe(paused);
    await open(made);
    await made.clock.advance(2_000);
    expect(made.reads.all).toBe(paused + 3);
  });

  test("who loads the page again and again costs no more than who looks", async () => {
    const made = await liveRig();
    for (let n = 0; n < 50; n += 1) await get(made.view);
    expect(made.reads.all).toBe(1);
    await made.clock.advance(1_000);
    await Promise.all(Array.from({ length: 50 }, () => get(made.view)));
    expect(made.reads.all).toBe(2);
  });

  test("a large store is read more rarely", async () => {
    const made = await liveRig();
    const { locks } = await made.open({ leaseMs: 3_600_000 });
    const holds = await Promise.all(Array.from({ length: 4_000 }, (_, n) => locks.mutex(`n${n}`).acquire()));
    const reader = await open(made);
    await made.clock.advance(1);
    const before = made.reads.all;
    await made.clock.advance(10_000);
    expect(made.reads.all - before).toBe(5);
    expect(reader.names.size).toBe(4_000);
    // In pieces: the first rows do not wait for the last.
    expect(reader.updates[0]?.set?.length ?? 0).toBeLessThanOrEqual(250);
    await Promise.all(holds.map((hold) => hold.release()));
  });

  test("it shows as many names as it may, and says that there are more", async () => {
    const made = await liveRig({ names: 3 });
    const { locks } = await made.open();
    const holds = await Promise.all(Array.from({ length: 5 }, (_, n) => locks.mutex(`n${n}`).acquire()));
    const reader = await open(made);
    expect(reader.names.size).toBe(3);
    expect(reader.updates.at(-1)?.status).toMatchObject({ shown: 3, more: true });
    expect(await (await get(made.view)).text()).toContain("more than the 3 names");
    await Promise.all(holds.map((hold) => hold.release()));
  });

  test("it shows the names under a prefix alone", async () => {
    const made = await liveRig({ prefix: "mine:" });
    const { locks } = await made.open();
    const holds = [await locks.mutex("mine:a").acquire(), await locks.mutex("yours:a").acquire()];
    expect([...(await open(made)).names.keys()]).toEqual(["mine:a"]);
    await Promise.all(holds.map((hold) => hold.release()));
  });

  test("more pages than may be open are refused", async () => {
    const made = await liveRig({ viewers: 2 });
    const [one] = [await open(made), await open(made)];
    expect((await get(made.view, "/events")).status).toBe(503);
    await one.leave();
    expect((await get(made.view, "/events")).status).toBe(200);
  });

  test("after ten minutes a stream ends, so that authorize is asked again", async () => {
    const made = await liveRig();
    const reader = await open(made);
    await made.clock.advance(599_000);
    await reader.read();
    expect(reader.ended).toBe(false);
    await made.clock.advance(3_000);
    await reader.read();
    expect(reader.ended).toBe(true);
  });

  test("closing the view ends its streams and leaves no timer", async () => {
    const made = await liveRig();
    const reader = await open(made);
    made.view.close();
    await reader.read();
    expect(reader.ended).toBe(true);
    expect((await get(made.view)).status).toBe(503);
    const before = made.reads.all;
    await made.clock.advance(10_000);
    expect(made.reads.all).toBe(before);
  });

  test("locks that are closed close their view", async () => {
    const made = await liveRig();
    const reader = await open(made);
    await made.locks.close();
    await made.clock.advance(2_000);
    await reader.read();
    expect(reader.ended).toBe(true);
    expect((await get(made.view)).status).toBe(503);
  });
});

describe("a store that does not answer", () => {
  test("is told by its error's code alone, asked less and less often, and told when it is back", async () => {
    const made = await liveRig();
    const reader = await open(made);
    const unavailable: unknown[] = [];
    made.locks.on("unavailable", ({ cause }) => unavailable.push(cause));
    const failing = new EngineUnavailableError("inspecting", "memory", new Error("user:password@host"));
    made.hooks.before = () => Promise.reject(failing);
    await made.clock.advance(1_000);
    const [told] = await reader.read();
    expect(told?.status).toMatchObject({ answering: false, code: failing.code });
    expect(JSON.stringify(told)).not.toContain("password");
    expect(unavailable).toEqual([failing]);
    const before = made.reads.all;
    await made.clock.advance(60_000);
    expect(made.reads.all - before).toBeLessThanOrEqual(10);
    made.hooks.before = async () => {};
    await made.clock.advance(10_000);
    await reader.read();
    expect(reader.updates.at(-1)?.status.answering).toBe(true);
  });

  test("and says nothing at all is told too, and asked once", async () => {
    const made = await liveRig();
    const reader = await open(made);
    made.hooks.before = () => never();
    await made.clock.advance(4_000);
    await reader.read();
    expect(reader.updates.at(-1)?.status.answering).toBe(false);
    const before = made.reads.all;
    await made.clock.advance(60_000);
    expect(made.reads.all).toBe(before);
    // Whoever loads the page is not kept waiting.
    const page = get(made.view);
    await made.clock.advance(2_500);
    expect(await (await page).text()).toContain("does not answer");
  });

  test("the first page says so too, and not that nothing is held", async () => {
    const made = await liveRig();
    made.hooks.before = () => never();
    const page = get(made.view);
    await made.clock.advance(2_500);
    const html = await (await page).text();
    expect(html).toContain("does not answer");
    expect(html).toContain("The store was not read yet.");
    expect(html).not.toContain("Nothing is held");
  });

  test("that answers but does not say who it is is told too", async () => {
    const made = await liveRig();
    const { engine } = made.locks.client;
    let answer: (info: { server: string }) => void = () => {};
    engine.serverInfo = () => new Promise((resolve) => (answer = resolve));
    const reader = await open(made);
    expect(reader.updates.at(-1)?.status.answering).toBe(true);
    await made.clock.advance(2_000);
    await reader.read();
    expect(reader.updates.at(-1)?.status.answering).toBe(false);
    answer({ server: "it" });
    await made.clock.advance(1_000);
    await reader.read();
    expect(reader.updates.at(-1)?.status.answering).toBe(true);
  });

  test("that stood still is read as often as before once it answers", async () => {
    const made = await liveRig();
    const reader = await open(made);
    let goOn: () => void = () => {};
    made.hooks.before = () => new Promise((resolve) => (goOn = resolve));
    await made.clock.advance(31_000);
    made.hooks.before = async () => {};
    goOn();
    await made.clock.advance(0);
    await reader.read();
    expect(reader.updates.at(-1)?.status).toMatchObject({ answering: true, everyMs: 1_000, tookMs: 30_000 });
    // For less than it takes to be told.
    made.hooks.before = () => new Promise((resolve) => (goOn = resolve));
    await made.clock.advance(1_900);
    made.hooks.before = async () => {};
    goOn();
    await made.clock.advance(0);
    await reader.read();
    expect(reader.updates.at(-1)?.status).toMatchObject({ answering: true, everyMs: 1_000, tookMs: 900 });
  });

  test("one that always takes long is read a tenth of the time", async () => {
    const made = await liveRig();
    made.hooks.before = () => new Promise((resolve) => void made.clock.after(500, resolve));
    const reader = await open(made);
    await made.clock.advance(500);
    await reader.read();
    expect(reader.updates.at(-1)?.status).toMatchObject({ everyMs: 4_500, tookMs: 500 });
    await made.clock.advance(5_000);
    await reader.read();
    expect(reader.updates.at(-1)?.status).toMatchObject({ everyMs: 4_500, tookMs: 500 });
  });

  test("an error that is not ours has the code of one that is", async () => {
    const made = await liveRig();
    const reader = await open(made);
    made.hooks.before = () => Promise.reject(new Error("ECONNREFUSED user@host"));
    await made.clock.advance(1_000);
    await reader.read();
    expect(reader.updates.at(-1)?.status).toMatchObject({ answering: false, code: EngineUnavailableError.code });
  });

  test("leaves no timer behind when the view is closed meanwhile", async () => {
    const made = await liveRig();
    const idle = made.clock.pending;
    await open(made);
    made.hooks.before = () => never();
    await made.clock.advance(5_000);
    made.view.close();
    expect(made.clock.pending).toBe(idle);
  });
});

describe("a viewer that reads slowly", () => {
  const picture = (pieces: number) => () =>
    Array.from({ length: pieces }, (_, n) => new Uint8Array([n]))[Symbol.iterator]();
  const big = new Uint8Array(300_000);

  test("is sent the next piece when it has taken the last", async () => {
    let made = 0;
    const viewer = new Viewer(
      function* () {
        for (let n = 0; n < 100; n += 1) yield new Uint8Array([(made += 1)]);
      },
      () => {},
      0,
    );
    const reader = viewer.body.getReader();
    await reader.read();
    await settle();
    expect(made).toBeLessThanOrEqual(2);
    await reader.cancel();
  });

  test("who falls behind by more than a bound gets the picture anew, and what comes after it", async () => {
    let pictures = 0;
    const viewer = new Viewer(
      () => {
        pictures += 1;
        return picture(1)();
      },
      () => {},
      0,
    );
    for (let n = 0; n < 100; n += 1) viewer.send(big, n);
    // Each picture drops four changes: what is kept stays below the bound.
    expect(pictures).toBe(26);
    const reader = viewer.body.getReader();
    expect((await reader.read()).value?.byteLength).toBe(1);
    viewer.send(new Uint8Array(7), 100);
    expect((await reader.read()).value?.byteLength).toBe(7);
  });

  test("who takes nothing for a minute is let go", async () => {
    const made = await liveRig();
    const stalled = await get(made.view, "/events");
    await made.clock.advance(59_000);
    const again = made.reads.all;
    await made.clock.advance(5_000);
    const after = made.reads.all;
    await made.clock.advance(60_000);
    expect([after > again, made.reads.all]).toEqual([true, after]);
    await expect(stalled.body?.cancel()).rejects.toThrow("fell behind");
  });

  test("who takes nothing when it ends is cut off", async () => {
    const viewer = new Viewer(picture(3), () => {}, 0);
    const reader = viewer.body.getReader();
    await reader.read();
    viewer.end();
    await expect(reader.closed).rejects.toThrow("fell behind");
  });

  test("who has taken everything when it ends is told so", async () => {
    const viewer = new Viewer(picture(1), () => {}, 0);
    const reader = viewer.body.getReader();
    await reader.read();
    const last = reader.read();
    await settle();
    viewer.end();
    expect(await last).toEqual({ done: true, value: undefined });
    await reader.closed;
  });

  test("who left in the middle of a message is forgotten", async () => {
    let left = 0;
    const viewer = new Viewer(picture(3), () => (left += 1), 0);
    await viewer.body.cancel();
    viewer.send(big, 0);
    viewer.end();
    expect(left).toBe(1);
  });
});

describe("what others wrote into the store", () => {
  const owner = { client: "c".repeat(22), host: "host", pid: 1 };
  const stateOf = (name: string, data: string): NameState => ({
    name,
    capacity: 1,
    lastToken: 2,
    holders: [{ id: "h", units: 1, leftMs: Infinity, owner, token: 1 }],
    waiters: [{ id: "w", units: 1, leftMs: 1000, owner, data }],
  });

  test.each([
    "null",
    "[]",
    "{",
    '{"stake":null}',
    '{"stake":{"holds":[null]}}',
    '{"stake":{"flow":7,"holds":[]}}',
    '{"stake":{"flow":"f","holds":[{"name":"a"}]}}',
    '{"stake":{"flow":"f","holds":{"some":1}}}',
    '{"stake":{"flow":"f","holds":[7,"x"]}}',
  ])("a claim whose data are %s is shown as any other", (data) => {
    const picture = new Picture();
    const { set } = picture.update([stateOf("a", data)], 0);
    expect(set[0]?.waiters).toMatchObject([{ units: 1 }]);
    expect(set[0]?.waiters[0]).not.toHaveProperty("holds");
    expect(set[0]?.holders[0]).toMatchObject({ until: null, leaseMs: null });
    expect(picture.deadlocks).toEqual([]);
  });

  test.each([
    null,
    {},
    { client: 7, host: null, pid: "<b>", label: { toString: 1 } },
    { client: "c", host: ["h"], pid: 1, label: 5 },
  ])("a claim whose owner is %j is shown as text, and spoils no other", (odd) => {
    const picture = new Picture();
    const holders = [{ id: "h", units: 1, leftMs: 1000, owner: odd as never, token: 1 }];
    const { set } = picture.update([{ ...stateOf("a", "x"), holders }, stateOf("b", "x")], 0);
    expect(set.map(({ name }) => name)).toEqual(["a", "b"]);
    const [holder] = set[0]?.holders ?? [];
    expect([typeof holder?.host, typeof holder?.pid, typeof (holder?.label ?? "")]).toEqual([
      "string",
      "number",
      "string",
    ]);
  });

  test("a capacity that is no number is text too", () => {
    const views = new Picture().update([{ ...stateOf("a", "x"), capacity: "<img src=x>" as never }], 0).set;
    const status = { answering: true, since: 0, tookMs: null, everyMs: 1000, shown: 1, more: false };
    expect(pageHtml({ views, status, now: 0, search: "" })).not.toContain("<img");
  });

  test("of a thousand waiters the first hundred are sent, and their number", () => {
    const waiters = Array.from({ length: 1000 }, (_, n) => ({ id: `w${n}`, units: 1, leftMs: 1000, owner }));
    const { set } = new Picture().update([{ ...stateOf("a", "x"), waiters }], 0);
    expect([set[0]?.waiters.length, set[0]?.waiterCount]).toEqual([100, 1000]);
  });

  test("as many as are looked at, in one deadlock, do not keep the program from its work", () => {
    const count = 200;
    const data = (n: number): string =>
      JSON.stringify({ stake: { flow: `f${n}`, since: 0, holds: [{ name: `n${n}`, id: `h${n}` }] } });
    const states = Array.from({ length: count }, (_, n) => ({
      ...stateOf(`n${n}`, ""),
      holders: [{ id: `h${n}`, units: 1, leftMs: 1000, owner, token: 1 }],
      waiters: [{ id: `w${n}`, units: 1, leftMs: 1000, owner, data: data((n + 1) % count) }],
    }));
    const picture = new Picture();
    // Once a minute of it went by here, at every reading: the test's own limit is far below that.
    picture.update(states, 0);
    expect(picture.deadlocks?.map((waits) => waits.length)).toEqual([count]);
  });

  test("too many claims that might be deadlocked are not looked at", () => {
    const picture = new Picture();
    const data = JSON.stringify({ stake: { flow: "f", since: 0, holds: [{ name: "a", id: "h" }] } });
    const waiters = Array.from({ length: 201 }, (_, n) => ({ id: `w${n}`, units: 1, leftMs: 1000, owner, data }));
    picture.update([{ ...stateOf("a", data), waiters }], 0);
    expect(picture.deadlocks).toBeNull();
  });

  test.each([
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "`${alert(1)}`",
    "&lt;b&gt;",
    "\u202etxt.exe",
    "שלום עולם",
    "</table></main><h1>",
    "x".repeat(512),
  ])("the page without scripts shows it as text: %j", async (text) => {
    const made = await liveRig();
    const { locks } = await made.open({ label: text.slice(0, 256) });
    const hold = await locks.mutex(text).acquire();
    for (const path of ["/", `/?q=${encodeURIComponent(text)}`]) {
      const html = await (await get(made.view, path)).text();
      expect(html.match(/<script/g)).toHaveLength(1);
      expect(html).not.toMatch(/<(img|h1>.*<h1|b>)/);
      const unescaped = html.replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)));
      expect(unescaped).toContain(`<bdi>${text.replace("\u202e", "⟨U+202E⟩")}</bdi>`);
    }
    await hold.release();
  });
});

test("two views of one store know nothing of each other", async () => {
  const made = await liveRig();
  const other = liveView(made.locks);
  const reader = new Reader(await get(other, "/events"));
  await open(made);
  made.view.close();
  await made.clock.advance(3_000);
  expect((await reader.read()).length).toBeGreaterThan(2);
  other.close();
});
