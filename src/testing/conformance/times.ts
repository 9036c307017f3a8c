import assert from "node:assert/strict";
import type { ClaimRef, Engine } from "../../core/engine.js";
import { READERS_MAX } from "../../core/limits.js";
import { type Case, granted, type Kit, queued, renewOne, stateOf } from "./kit.js";

/** What stores and their clocks may round. */
const ROUNDED_MS = 2;

/**
 * How long `inspect` says that a claim has waited or been held, in ms: at least for what has passed since `after`, and at most
 * for what has passed since `before`. Both are times at which something was done here, so that a slow machine changes nothing.
 */
export async function lasts(
  kit: Kit,
  engine: Engine,
  { name, id }: ClaimRef,
  what: "held" | "waiting",
  [before, after]: Between,
): Promise<void> {
  const least = kit.clock.now() - after - ROUNDED_MS;
  const state = await stateOf(engine, name);
  const ms = what === "held" ? find(state?.holders, id)?.heldMs : find(state?.waiters, id)?.waitingMs;
  const most = kit.clock.now() - before + ROUNDED_MS;
  assert.ok(ms !== undefined, `how long ${id} has been ${what} is told`);
  assert.ok(ms >= least && ms <= most, `${what} for ${ms} ms, which should be from ${least} to ${most}`);
}

function find<State extends { readonly id: string }>(states: readonly State[] = [], id: string): State | undefined {
  return states.find((one) => one.id === id);
}

type Between = readonly [before: number, after: number];

/** When a step was taken: a time before it, and one after it. */
export async function timed(kit: Kit, step: () => Promise<unknown>): Promise<Between> {
  const before = kit.clock.now();
  await step();
  return [before, kit.clock.now()];
}

/** How long claims have waited and been held, as `inspect` tells it. */
export const times: readonly Case[] = [
  {
    name: "inspect tells since when a claim waits, and from its grant on since when it holds; nothing but the grant resets it",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [first, second, third] = [kit.claim(name), kit.claim(name), kit.claim(name)];
      const taken = await timed(kit, async () => granted(await a.claim(first)));
      await kit.pass(0.2);
      const asked = await timed(kit, async () => queued(await b.claim(second)));
      await kit.pass(0.2);
      const last = await timed(kit, async () => queued(await a.claim(third)));
      const others = async (): Promise<void> => {
        await lasts(kit, b, first, "held", taken);
        await lasts(kit, a, second, "waiting", asked);
        await lasts(kit, b, third, "waiting", last);
      };
      await others();
      await kit.pass(0.2);
      granted(await renewOne(a, first));
      queued(await renewOne(b, second));
      queued(await renewOne(a, third));
      await others();
      // Copies whose answers were lost, perhaps.
      granted(await a.claim(first));
      queued(await b.claim(second));
      await others();
      const passed = await timed(kit, async () => assert.equal(await a.release(first), "released"));
      await kit.pass(0.2);
      await lasts(kit, a, second, "held", passed);
      granted(await renewOne(b, second));
      granted(await b.claim(second));
      await kit.pass(0.2);
      await lasts(kit, a, second, "held", passed);
      await lasts(kit, a, third, "waiting", last);
      assert.equal(await a.release(third), "released");
      await lasts(kit, a, second, "held", passed);
      assert.equal(await b.release(second), "released");
      await kit.passesOn(a, name, [first, second, third]);
    },
  },
  {
    name: "inspect tells of each of several holders since when it holds, also of one that shrinks, and of those that this lets in",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [writer, reader] = [kit.writer(name), kit.reader(name)];
      const taken = await timed(kit, async () => granted(await a.claim(writer)));
      await kit.pass(0.2);
      const asked = await timed(kit, async () => queued(await b.claim(reader)));
      await kit.pass(0.2);
      await lasts(kit, b, writer, "held", taken);
      await lasts(kit, a, reader, "waiting", asked);
      const shrunk = await timed(kit, async () => assert.equal(await a.resize(writer, 1), "resized"));
      await kit.pass(0.2);
      await lasts(kit, b, writer, "held", taken);
      await lasts(kit, a, reader, "held", shrunk);
      const more = kit.reader(name);
      const joined = await timed(kit, async () => granted(await a.claim(more)));
      await kit.pass(0.2);
      await lasts(kit, b, more, "held", joined);
      await lasts(kit, b, writer, "held", taken);
      await lasts(kit, b, reader, "held", shrunk);
      assert.equal(await a.release(writer), "released");
      await lasts(kit, b, reader, "held", shrunk);
      assert.equal(await b.release(reader), "released");
      assert.equal(await a.release(more), "released");
      await kit.passesOn(a, name, [writer, reader, more], READERS_MAX);
    },
  },
  {
    name: "inspect tells since when claims hold that a larger capacity, or somebody else's release, let in",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const ask = { capacity: 2 };
      const claims = [kit.claim(name, ask), kit.claim(name, ask), kit.claim(name, ask), kit.claim(name, ask)] as const;
      const [one, two, three, four] = claims;
      const taken = await timed(kit, async () => granted(await a.claim(one)));
      await kit.pass(0.2);
      const joined = await timed(kit, async () => granted(await b.claim(two)));
      queued(await a.claim(three));
      const asked = await timed(kit, async () => queued(await b.claim(four)));
      await kit.pass(0.2);
      const grown = await timed(kit, async () => assert.deepEqual(await a.setCapacity(name, 2, 3), { kind: "set" }));
      await kit.pass(0.2);
      await lasts(kit, b, one, "held", taken);
      await lasts(kit, b, two, "held", joined);
      await lasts(kit, b, three, "held", grown);
      await lasts(kit, b, four, "waiting", asked);
      const forced = await timed(kit, async () => assert.equal(await b.release(one), "released"));
      await kit.pass(0.2);
      await lasts(kit, a, two, "held", joined);
      await lasts(kit, a, three, "held", grown);
      await lasts(kit, a, four, "held", forced);
      for (const claim of [two, three, four]) assert.equal(await a.release(claim), "released");
      await kit.passesOn(b, name, claims, 3);
    },
  },
];
