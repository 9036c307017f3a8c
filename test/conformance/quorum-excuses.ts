import assert from "node:assert/strict";
import type { EngineEvent } from "../../src/core/engine.js";
import { UnsupportedError } from "../../src/core/errors.js";
import { READERS_MAX } from "../../src/core/limits.js";
import type { Excuse } from "../../src/testing/conformance/index.js";
import { granted, type Kit, queued, renewOne, stateOf } from "../../src/testing/conformance/kit.js";
import { lasts, timed } from "../../src/testing/conformance/times.js";

/** What a quorum does not do, why, and what it does instead. */
const VOTES_FIRST =
  "whoever waits stands in one member's queue, known to its own client alone, and holds when it has voted: it is told to ask, and the token is minted then";

/** The heart of most excuses: order and wake come from one member, the grant from the votes that follow. */
const waitsForItsTurn: Excuse = {
  reason: VOTES_FIRST,
  async instead(kit) {
    const [a, b, c] = [await kit.open(), await kit.open(), await kit.open()];
    const name = kit.name();
    const [holder, waiter, next] = [kit.claim(name), kit.claim(name), kit.claim(name)];
    const [toB, toC] = [kit.listen(b), kit.listen(c)];
    const isWoken = (heard: readonly EngineEvent[], id: string) => (): boolean =>
      heard.some((event) => event.kind === "wake" && event.id === id);
    const { token } = granted(await a.claim(holder));
    queued(await b.claim(waiter));
    queued(await c.claim(next));
    assert.deepEqual(
      (await stateOf(a, name))?.waiters.map(({ id }) => id),
      [waiter.id, next.id],
    );
    assert.equal((await a.claim(kit.claim(name, { wait: false }))).kind, "busy", "nobody overtakes");
    queued(await renewOne(b, waiter));
    assert.equal(await a.release(holder), "released");
    await kit.until(10, "the first is told", isWoken(toB, waiter.id));
    assert.ok(!isWoken(toC, next.id)(), "and nobody else");
    assert.equal((await a.claim(kit.claim(name, { wait: false }))).kind, "busy", "nobody comes between");
    queued(await renewOne(c, next));
    const first = granted(await renewOne(b, waiter));
    assert.ok(first.token > token);
    assert.equal(await b.release(waiter), "released");
    await kit.until(10, "the second is told", isWoken(toC, next.id));
    assert.ok(granted(await renewOne(c, next)).token > first.token);
    assert.equal(await c.release(next), "released");
    await kit.passesOn(a, name, [holder, waiter, next]);
  },
};

/** A hold counts from the votes that granted it, a wait from the claim's place in the queue. */
const holdsFromItsVotes: Excuse = {
  reason: VOTES_FIRST,
  async instead(kit) {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const [holder, waiter] = [kit.claim(name), kit.claim(name)];
    const heard = kit.listen(b);
    const taken = await timed(kit, async () => granted(await a.claim(holder)));
    await kit.pass(0.2);
    const asked = await timed(kit, async () => queued(await b.claim(waiter)));
    await kit.pass(0.2);
    granted(await renewOne(a, holder));
    queued(await renewOne(b, waiter));
    granted(await a.claim(holder));
    await lasts(kit, b, holder, "held", taken);
    await lasts(kit, a, waiter, "waiting", asked);
    assert.equal(await a.release(holder), "released");
    await kit.until(10, "it is told", () => heard.some((event) => event.kind === "wake" && event.id === waiter.id));
    const voted = await timed(kit, async () => granted(await renewOne(b, waiter)));
    await kit.pass(0.2);
    await lasts(kit, a, waiter, "held", voted);
    assert.equal(await b.release(waiter), "released");
    await kit.passesOn(a, name, [holder, waiter]);
  },
};

const noCells: Excuse = {
  reason: "a quorum keeps no cells",
  async instead(kit) {
    assert.equal((await kit.open()).cells, null);
  },
};

const excuse = (instead: (kit: Kit) => Promise<void>, reason = VOTES_FIRST): Excuse => ({ reason, instead });

export const EXCUSED: Readonly<Record<string, Excuse>> = {
  "waiting claims are granted in order of arrival, one at a time": waitsForItsTurn,
  "a claim that would fit does not overtake one that waits": waitsForItsTurn,
  "withdrawing a large claim lets in the smaller ones behind it": waitsForItsTurn,
  "the release itself grants the first waiter: nobody comes between, pushed or not": waitsForItsTurn,
  "a grant after waiting is pushed to the client that asked, with its token, and to nobody else": waitsForItsTurn,
  "the hand-over leaves the waiter lease as it is: a grant that nobody confirms ends with it": waitsForItsTurn,
  "a claim's token is minted when it arrives: told while it waits, and the one that it holds with": waitsForItsTurn,
  "a claim that waits is told on arrival which claim of its own client is directly before it, and no other":
    waitsForItsTurn,
  "a claim whose lease has ended is not the one that a new claim is told to stand behind": waitsForItsTurn,
  "a claim that its client has let go on already is granted by the release without a push": waitsForItsTurn,
  "tokens that a claim keeps for itself are nobody else's, whether it holds or waits": excuse(
    async (kit) => assert.notEqual((await kit.open()).reserves, true),
    "a quorum's token is made of its members' answers: none can be kept",
  ),
  "a release by somebody else is told to the holder": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const toA = kit.listen(a);
    const holder = kit.claim(kit.name());
    granted(await a.claim(holder));
    assert.equal(await b.release(holder), "released");
    await kit.until(10, "told to ask", () => toA.some((event) => event.kind === "wake" && event.id === holder.id));
    assert.deepEqual(await renewOne(a, holder), { kind: "gone", revoked: true });
    await kit.passesOn(b, holder.name, [holder]);
  }, "one member's word is not the quorum's: the holder is told to ask"),
  "inspect tells since when a claim waits, and from its grant on since when it holds; nothing but the grant resets it":
    holdsFromItsVotes,
  "inspect tells of each of several holders since when it holds, also of one that shrinks, and of those that this lets in":
    holdsFromItsVotes,
  "inspect tells since when claims hold that a larger capacity, or somebody else's release, let in": holdsFromItsVotes,
  "a cell is written over the version that was read, once per operation": noCells,
  "of many writers over one version exactly one wins": noCells,
  "a watcher of a cell learns of changes by others, until it leaves": noCells,

  "several permits are granted all or none": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const one = kit.claim(name, { capacity: 3 });
    const [three, again] = [kit.claim(name, { capacity: 3, units: 3 }), kit.claim(name, { capacity: 3, units: 3 })];
    granted(await a.claim(one));
    assert.equal((await b.claim({ ...three, wait: false })).kind, "busy");
    const state = await stateOf(a, name);
    assert.deepEqual(
      state?.holders.map((holder) => [holder.id, holder.units]),
      [[one.id, 1]],
    );
    assert.equal(await a.release(one), "released");
    granted(await b.claim(again));
    assert.equal(await b.release(again), "released");
    await kit.passesOn(a, name, [one, three, again], 3);
  }),

  "readers share, a writer is alone, and later readers wait behind a waiting writer": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const [one, two, late] = [kit.reader(name), kit.reader(name), kit.reader(name)];
    const [early, writer] = [kit.writer(name), kit.writer(name)];
    granted(await a.claim(one));
    assert.equal((await a.claim({ ...early, wait: false })).kind, "busy");
    granted(await b.claim(two)); // A writer that only comes back now and then may wait long.
    assert.equal(await a.release(one), "released");
    assert.equal(await b.release(two), "released");
    granted(await a.claim(writer));
    assert.equal((await b.claim({ ...late, wait: false })).kind, "busy", "no reader beside a writer");
    assert.equal(await a.release(writer), "released");
    await kit.passesOn(a, name, [one, two, early, writer, late], READERS_MAX);
  }),

  "a claim sent again takes once: the same token, no more time, no second position": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const holder = kit.claim(name);
    const first = granted(await a.claim(holder));
    const second = granted(await a.claim(holder));
    assert.equal(second.token, first.token);
    assert.ok(second.leftMs <= first.leftMs, "an answer asked for again does not stretch the lease");
    assert.equal((await stateOf(a, name))?.holders.length, 1);
    assert.equal(await a.release(holder), "released");
    await kit.passesOn(b, name, [holder]);
  }),

  "many claims are renewed in one call, each with its own answer in its own place": excuse(async (kit) => {
    const a = await kit.open();
    const names = Array.from({ length: 130 }, () => kit.name());
    const holders = names.map((name) => kit.claim(name));
    for (const claim of holders) granted(await a.claim(claim));
    const requests = names.flatMap((name, n) => [holders[n] ?? kit.claim(name), kit.claim(name)]);
    assert.deepEqual(
      (await a.renew(requests)).map((answer) => answer.kind),
      names.flatMap(() => ["granted", "gone"]),
    );
    assert.deepEqual(await a.renew([]), []);
    await Promise.all(holders.map((claim) => a.release(claim)));
    await kit.passesOn(await kit.open(), names[0] ?? "", [holders[0] ?? kit.claim("")]);
  }),

  "a copy of a claim that arrives after grant and release stays dead": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const twice = kit.claim(name);
    granted(await a.claim(twice));
    assert.equal(await a.release(twice), "released");
    assert.equal((await a.claim(twice)).kind, "gone");
    assert.equal((await b.claim(twice)).kind, "gone", "whoever sends it");
    await kit.passesOn(b, name, [twice]);
  }),

  "a release by somebody else is told by the holder's next call too, whichever comes first": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const [renewed, released] = [kit.claim(name), kit.claim(name)];
    granted(await a.claim(renewed));
    assert.equal(await b.release(renewed), "released");
    assert.deepEqual(await renewOne(a, renewed), { kind: "gone", revoked: true }, "told by a renewal");
    granted(await a.claim(released));
    assert.equal(await b.release(released), "released");
    assert.equal(await a.release({ ...released, tombstone: "never" }), "revoked", "told by its own release");
    await kit.passesOn(b, name, [renewed, released]);
  }),

  "a listener that left hears nothing, the others do": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const heard: string[] = [];
    const unlisten = a.listen(() => heard.push("left"));
    a.listen((event) => heard.push(event.kind));
    unlisten();
    const name = kit.name();
    const holder = kit.claim(name);
    granted(await a.claim(holder));
    assert.equal(await b.release(holder), "released");
    await kit.until(10, "told to ask", () => heard.includes("wake"));
    assert.ok(!heard.includes("left"));
    await kit.passesOn(b, name, [holder]);
  }),

  "a writer becomes a reader without letting go; units never grow": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const [writer, other] = [kit.writer(name), kit.writer(name)];
    const reader = kit.reader(name);
    const { token } = granted(await a.claim(writer));
    assert.equal(await a.resize(writer, READERS_MAX), "resized");
    assert.equal(await a.resize(writer, 1), "resized");
    assert.equal(await a.resize(writer, 1), "resized", "also when the answer was lost and it is sent again");
    assert.equal(await a.resize(writer, 2), "refused");
    granted(await b.claim(reader));
    assert.equal((await b.claim({ ...other, wait: false })).kind, "busy");
    assert.equal(granted(await renewOne(a, writer)).token, token);
    assert.equal(await a.release(writer), "released");
    assert.equal(await a.resize(writer, 1), "gone");
    assert.equal(await b.release(reader), "released");
    await kit.passesOn(a, name, [writer, reader, other], READERS_MAX);
  }),

  "a larger capacity lets in what now fits; new claims must agree with it": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const holder = kit.claim(name, { capacity: 4, units: 4 });
    granted(await a.claim(holder));
    await assert.rejects(b.setCapacity(name, 1, 5), UnsupportedError, "the old holders were let in by fewer");
    assert.deepEqual(await b.setCapacity(name, 7, 5), { kind: "mismatch", capacity: 4 });
    assert.deepEqual(await b.setCapacity(name, 4, 5), { kind: "set" });
    assert.deepEqual(await b.setCapacity(name, 4, 5), { kind: "set" }, "also when it was so already");
    const fifth = kit.claim(name, { capacity: 5 });
    granted(await b.claim(fifth));
    assert.deepEqual(await a.claim(kit.claim(name, { capacity: 4 })), { kind: "mismatch", capacity: 5 });
    for (const claim of [holder, fifth]) assert.equal(await a.release(claim), "released");
    await kit.passesOn(b, name, [holder, fifth], 3);
  }, "nobody waits, and a capacity that needs a larger quorum is refused"),

  "a smaller capacity leaves holders alone and refuses waiters that can never be served": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const holder = kit.claim(name, { capacity: 4, units: 3 });
    granted(await a.claim(holder));
    assert.deepEqual(await b.setCapacity(name, 4, 2), { kind: "set" });
    granted(await renewOne(a, holder));
    assert.equal((await b.claim(kit.claim(name, { capacity: 2, wait: false }))).kind, "busy");
    assert.equal(await a.release(holder), "released");
    await kit.passesOn(b, name, [holder], 2);
  }),

  "setting the capacity of an idle name leaves nothing behind": excuse(async (kit) => {
    const a = await kit.open();
    const name = kit.name();
    await assert.rejects(a.setCapacity(name, 1, 3), UnsupportedError);
    assert.deepEqual(await a.setCapacity(name, 3, 1), { kind: "set" });
    assert.equal(await stateOf(a, name), undefined);
    await kit.passesOn(a, name, [], 9);
  }, "a capacity that needs a larger quorum is refused: nobody can know that all let go"),

  "tokens are positive safe integers that grow over every grant: free, handed over, expired, idle in between": excuse(
    async (kit) => {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const seen: number[] = [];
      const old = Array.from({ length: 6 }, (_, n) => kit.claim(name, n === 3 ? { leaseMs: kit.step } : {}));
      for (const [n, claim] of old.entries()) {
        seen.push(granted(await (n % 2 ? a : b).claim(claim)).token);
        if (n === 3) await kit.pass(1.5);
        else assert.equal(await a.release({ ...claim, ...(n > 2 ? { tombstone: "never" } : {}) }), "released");
      }
      for (const token of seen) assert.ok(Number.isSafeInteger(token) && token > 0, `${token}`);
      assert.deepEqual(
        seen,
        [...new Set(seen)].toSorted((one, two) => one - two),
      );
      await kit.passesOn(a, name, old);
    },
  ),

  "a grant keeps its token: asked again, renewed, extended, shrunk": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const [holder, next] = [kit.claim(name, { capacity: 3, units: 3 }), kit.claim(name, { capacity: 3, units: 3 })];
    const { token } = granted(await a.claim(holder));
    assert.equal(granted(await a.claim(holder)).token, token);
    assert.equal(granted(await renewOne(a, holder)).token, token);
    assert.equal(granted(await renewOne(a, { ...holder, leaseMs: 40 * kit.step })).token, token);
    assert.equal(await a.resize(holder, 2), "resized");
    assert.equal(granted(await renewOne(a, holder)).token, token);
    assert.equal(granted(await renewOne(b, holder)).token, token, "also for a client that it was handed over to");
    assert.equal(await a.release(holder), "released");
    assert.ok(granted(await b.claim(next)).token > token);
    assert.equal(await b.release(next), "released");
    await kit.passesOn(a, name, [holder, next], 3);
  }),

  "an exact grant lists all live tokens, whether granted at once or after waiting": excuse(async (kit) => {
    const [a, b] = [await kit.open(), await kit.open()];
    const name = kit.name();
    const ask = { capacity: 2, exact: true };
    const [one, two, three] = [kit.claim(name, ask), kit.claim(name, ask), kit.claim(name, ask)];
    const first = granted(await a.claim(one));
    assert.deepEqual(first.live, [first.token]);
    const second = granted(await b.claim(two));
    assert.deepEqual(second.live, [first.token, second.token]);
    assert.equal(await a.release(one), "released");
    const third = granted(await a.claim(three));
    assert.deepEqual(third.live, [second.token, third.token]);
    for (const claim of [two, three]) assert.equal(await a.release(claim), "released");
    const plain = kit.claim(name);
    assert.equal(granted(await a.claim(plain)).live, undefined, "only for those who ask");
    assert.equal(await a.release(plain), "released");
    await kit.passesOn(a, name, [one, two, three, plain]);
  }),

  "a suggested token is kept when it is higher, raised by a renewal, and never gone below": excuse(async (kit) => {
    const a = await kit.open();
    const name = kit.name();
    const plain = kit.claim(name);
    const { token } = granted(await a.claim(plain));
    assert.equal(await a.release(plain), "released");
    const far = token + 1_000_000_000;
    const high = kit.claim(name, { tokenAtLeast: far });
    assert.equal(granted(await a.claim(high)).token, far);
    assert.equal(granted(await renewOne(a, { ...high, tokenAtLeast: far + 7 })).token, far + 7);
    assert.equal(granted(await renewOne(a, { ...high, tokenAtLeast: far })).token, far + 7);
    assert.equal(await a.release(high), "released");
    const low = kit.claim(name, { tokenAtLeast: 1 });
    assert.ok(granted(await a.claim(low)).token > far + 7);
    assert.equal(await a.release(low), "released");
    await kit.passesOn(a, name, [plain, high, low]);
  }),

  "inspect shows holders by token and waiters by arrival, with owner, data, units and time left": excuse(
    async (kit) => {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const owner = { client: "client-1", host: "höst", pid: 7, label: 'a "label" with {odd} things' };
      const one = kit.claim(name, { capacity: 3, owner, data: '{"value":"ü"}' });
      const two = kit.claim(name, { capacity: 3, owner, units: 2 });
      const [first, second] = [granted(await a.claim(one)), granted(await b.claim(two))];
      const { kind, holder } = (await a.claim(kit.claim(name, { capacity: 3, wait: false }))) as {
        kind: string;
        holder: unknown;
      };
      assert.deepEqual({ kind, holder }, { kind: "busy", holder: owner });
      const state = await stateOf(b, name);
      assert.deepEqual(
        state?.holders.map((holder) => ({ ...holder, leftMs: 0, heldMs: 0 })),
        [
          { id: one.id, units: 1, leftMs: 0, owner, data: one.data, token: first.token, heldMs: 0 },
          { id: two.id, units: 2, leftMs: 0, owner, token: second.token, heldMs: 0 },
        ],
      );
      assert.deepEqual([state?.capacity, state?.lastToken], [3, second.token]);
      for (const claim of [one, two]) assert.equal(await a.release(claim), "released");
      await kit.passesOn(b, name, [one, two], 3);
    },
  ),

  "clients take turns in order of arrival, with growing tokens": excuse(async (kit) => {
    const clients = [await kit.connect(), await kit.connect(), await kit.connect()];
    const name = kit.name();
    const tokens: number[] = [];
    const turns = clients.flatMap((locks) =>
      [1, 2].map(() => locks.mutex(name).using((hold) => void tokens.push(hold.token))),
    );
    await kit.settled(Promise.all(turns), 60);
    assert.equal(tokens.length, turns.length, "everybody gets a turn, in whatever order");
    assert.deepEqual(
      tokens,
      tokens.toSorted((one, two) => one - two),
    );
    await kit.passesOn(await kit.open(), name, []);
  }),
};
