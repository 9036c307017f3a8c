import assert from "node:assert/strict";
import { READERS_MAX } from "../../core/limits.js";
import { type Case, granted, queued, renewOne, stateOf } from "./kit.js";

/** Exclusion, order, units and capacity, and the identity of a claim. */
export const claims: readonly Case[] = [
  {
    name: "a free name is granted once; a claim told not to wait is busy",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const first = kit.claim(name);
      granted(await a.claim(first));
      const busy = await b.claim(kit.claim(name, { wait: false }));
      assert.equal(busy.kind, "busy");
      assert.equal((await a.claim(kit.claim(name, { wait: false }))).kind, "busy", "also for the same client");
      assert.equal(await a.release(first), "released");
      await kit.passesOn(b, name, [first]);
    },
  },
  {
    name: "names are compared byte by byte and hold anything but control characters",
    async run(kit) {
      const a = await kit.open();
      const stem = kit.name();
      const tails = [
        "",
        " ",
        "A",
        "a",
        "ä",
        "a\u0308",
        "'",
        '"; DROP TABLE x; --',
        "{x}",
        "%s%00",
        "/../",
        "🔒",
        "_",
        "*",
        "\\",
      ];
      const held = tails.map((tail) => kit.claim(stem + tail));
      held.push(kit.claim(stem.padEnd(512, "x")), kit.claim(stem.padEnd(511, "x")));
      for (const claim of held) granted(await a.claim(claim));
      for (const claim of held) assert.equal((await a.claim(kit.claim(claim.name, { wait: false }))).kind, "busy");
      for (const claim of held) assert.equal(await a.release(claim), "released");
      for (const claim of held) await kit.passesOn(a, claim.name, [claim]);
    },
  },
  {
    name: "waiting claims are granted in order of arrival, one at a time",
    async run(kit) {
      const clients = [await kit.open(), await kit.open(), await kit.open()] as const;
      const name = kit.name();
      const queue = Array.from({ length: 7 }, () => kit.claim(name));
      for (const [n, claim] of queue.entries()) {
        const answer = await clients[n % 3]?.claim(claim);
        assert.equal(answer?.kind, n === 0 ? "granted" : "queued");
      }
      for (const [n, claim] of queue.entries()) {
        const answers = await clients[0].renew(queue.slice(n));
        assert.deepEqual(
          answers.map((answer) => answer.kind),
          queue.slice(n).map((_, ahead) => (ahead === 0 ? "granted" : "queued")),
        );
        assert.equal(await clients[n % 3]?.release(claim), "released");
      }
      await kit.passesOn(clients[1], name, queue);
    },
  },
  {
    name: "a claim that would fit does not overtake one that waits",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const small = kit.claim(name, { capacity: 3, units: 2 });
      const large = kit.claim(name, { capacity: 3, units: 3 });
      const late = kit.claim(name, { capacity: 3 });
      granted(await a.claim(small));
      queued(await b.claim(large));
      assert.equal((await a.claim(kit.claim(name, { capacity: 3, wait: false }))).kind, "busy");
      queued(await a.claim(late));
      assert.equal(await a.release(small), "released");
      granted(await renewOne(b, large));
      queued(await renewOne(a, late));
      assert.equal(await b.release(large), "released");
      granted(await renewOne(a, late));
      assert.equal(await a.release(late), "released");
      await kit.passesOn(a, name, [small, large, late], 3);
    },
  },
  {
    name: "permits add up to the capacity and not beyond, and come back exactly once",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const ask = { capacity: 5, wait: false };
      const [two, three] = [kit.claim(name, { ...ask, units: 2 }), kit.claim(name, { ...ask, units: 3 })];
      granted(await a.claim(two));
      granted(await b.claim(three));
      assert.equal((await a.claim(kit.claim(name, ask))).kind, "busy");
      assert.equal(await a.release(two), "released");
      assert.equal(await a.release(two), "revoked");
      assert.equal(
        (await b.claim(kit.claim(name, { ...ask, units: 3 }))).kind,
        "busy",
        "a second release frees nothing",
      );
      const again = kit.claim(name, { ...ask, units: 2 });
      granted(await b.claim(again));
      assert.equal(await b.release(three), "released");
      assert.equal(await b.release(again), "released");
      await kit.passesOn(a, name, [two, three, again], 5);
    },
  },
  {
    name: "several permits are granted all or none",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const one = kit.claim(name, { capacity: 3 });
      const three = kit.claim(name, { capacity: 3, units: 3 });
      granted(await a.claim(one));
      queued(await b.claim(three));
      const state = await stateOf(a, name);
      assert.deepEqual(
        state?.holders.map((holder) => [holder.id, holder.units]),
        [[one.id, 1]],
      );
      assert.deepEqual(
        state?.waiters.map((waiter) => [waiter.id, waiter.units]),
        [[three.id, 3]],
      );
      assert.equal(await a.release(one), "released");
      granted(await renewOne(b, three));
      assert.equal(await b.release(three), "released");
      await kit.passesOn(a, name, [one, three], 3);
    },
  },
  {
    name: "readers share, a writer is alone, and later readers wait behind a waiting writer",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [one, two, late] = [kit.reader(name), kit.reader(name), kit.reader(name)];
      const writer = kit.writer(name);
      granted(await a.claim(one));
      granted(await b.claim(two));
      queued(await a.claim(writer));
      queued(await b.claim(late));
      assert.equal(await a.release(one), "released");
      queued(await renewOne(a, writer));
      assert.equal(await b.release(two), "released");
      granted(await renewOne(a, writer));
      queued(await renewOne(b, late));
      assert.equal((await b.claim(kit.reader(name, { wait: false }))).kind, "busy", "no reader beside a writer");
      assert.equal(await a.release(writer), "released");
      granted(await renewOne(b, late));
      assert.equal(await b.release(late), "released");
      await kit.passesOn(a, name, [one, two, writer, late], READERS_MAX);
    },
  },
  {
    name: "another capacity is a mismatch while the name is in use, and forgotten when it is idle",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const holder = kit.claim(name, { capacity: 2 });
      granted(await a.claim(holder));
      for (const wait of [true, false]) {
        assert.deepEqual(await b.claim(kit.claim(name, { capacity: 3, wait })), { kind: "mismatch", capacity: 2 });
      }
      assert.equal(await a.release(holder), "released");
      await kit.passesOn(b, name, [holder], 7);
    },
  },
  {
    name: "a claim sent again takes once: the same token, no more time, no second position",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [holder, waiter, other] = [kit.claim(name), kit.claim(name), kit.claim(name)];
      const first = granted(await a.claim(holder));
      queued(await b.claim(waiter));
      queued(await a.claim(other));
      const second = granted(await a.claim(holder));
      assert.equal(second.token, first.token);
      assert.ok(second.leftMs <= first.leftMs, "an answer asked for again does not stretch the lease");
      queued(await b.claim(waiter));
      assert.deepEqual(
        (await stateOf(a, name))?.waiters.map((one) => one.id),
        [waiter.id, other.id],
      );
      assert.equal(await a.release(holder), "released");
      granted(await b.claim(waiter));
      queued(await a.claim(other));
      assert.equal(await b.release(waiter), "released");
      assert.equal(await a.release(other), "released");
      await kit.passesOn(b, name, [holder, waiter, other]);
    },
  },
  {
    name: "an id that the program chose is one claim, whichever client asks with it",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const holder = kit.claim(name, { chosen: true });
      const { token } = granted(await a.claim(holder));
      assert.equal(granted(await b.claim(holder)).token, token);
      assert.equal((await stateOf(a, name))?.holders.length, 1);
      assert.equal(await b.release(holder), "released");
      await kit.passesOn(b, name, [holder]);
    },
  },
  {
    name: "a known id is answered before the capacity is compared",
    async run(kit) {
      const a = await kit.open();
      const name = kit.name();
      const holder = kit.claim(name, { capacity: 2 });
      const { token } = granted(await a.claim(holder));
      assert.equal(granted(await a.claim({ ...holder, capacity: 9 })).token, token);
      assert.equal(await a.release(holder), "released");
      await kit.passesOn(a, name, [holder]);
    },
  },
  {
    name: "only the claim's own id releases it",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [holder, stranger] = [kit.claim(name), kit.claim(name)];
      granted(await a.claim(holder));
      assert.equal(await b.release(stranger), "gone");
      assert.equal(await a.release({ name: kit.name(), id: holder.id }), "gone", "nor under another name");
      granted(await renewOne(a, holder));
      assert.equal((await b.claim(kit.claim(name, { wait: false }))).kind, "busy");
      assert.equal(await a.release(holder), "released");
      await kit.passesOn(b, name, [holder]);
    },
  },
  {
    name: "a claim withdrawn while it waits leaves its position to the next",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [holder, leaver, next] = [kit.claim(name), kit.claim(name), kit.claim(name)];
      granted(await a.claim(holder));
      queued(await b.claim(leaver));
      queued(await a.claim(next));
      assert.equal(await b.release(leaver), "released");
      assert.equal((await renewOne(b, leaver)).kind, "gone");
      assert.equal(await a.release(holder), "released");
      granted(await renewOne(a, next));
      assert.equal(await a.release(next), "released");
      await kit.passesOn(b, name, [holder, leaver, next]);
    },
  },
  {
    name: "withdrawing a large claim lets in the smaller ones behind it",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const ask = { capacity: 3 };
      const [holder, large, small] = [
        kit.claim(name, ask),
        kit.claim(name, { ...ask, units: 3 }),
        kit.claim(name, ask),
      ];
      granted(await a.claim(holder));
      queued(await b.claim(large));
      queued(await a.claim(small));
      assert.equal(await b.release(large), "released");
      granted(await renewOne(a, small));
      assert.equal(await a.release(small), "released");
      assert.equal(await a.release(holder), "released");
      await kit.passesOn(b, name, [holder, large, small], 3);
    },
  },
];
