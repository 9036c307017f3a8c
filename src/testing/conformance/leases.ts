import assert from "node:assert/strict";
import { READERS_MAX } from "../../core/limits.js";
import { between, type Case, granted, queued, renewOne, stateOf } from "./kit.js";

/** Leases of holders and waiters, heartbeats, and the tombstones that keep late copies dead. */
export const leases: readonly Case[] = [
  {
    name: "a lease that is not renewed ends, and the dead id is not revived",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const dead = kit.claim(name, { leaseMs: kit.step });
      const { leftMs } = granted(await a.claim(dead));
      between(leftMs, kit.step * 0.5, Math.max(kit.step, a.leaseMinMs), "time left of a new grant");
      await kit.pass(1.5);
      assert.deepEqual(await renewOne(a, dead), { kind: "gone" }, "not revoked: nobody released it");
      const next = kit.claim(name);
      granted(await b.claim(next));
      assert.deepEqual(await renewOne(a, dead), { kind: "gone" });
      assert.equal(await a.release(dead), "gone");
      granted(await renewOne(b, next));
      assert.equal(await b.release(next), "released");
      await kit.passesOn(a, name, [dead, next]);
    },
  },
  {
    name: "renewal keeps the lease, each answer carrying the time left in that very step",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const holder = kit.claim(name, { leaseMs: 2 * kit.step });
      granted(await a.claim(holder));
      for (let n = 0; n < 3; n += 1) {
        await kit.pass(1);
        const { leftMs } = granted(await renewOne(a, holder));
        between(leftMs, kit.step * 1.5, Math.max(kit.step * 2, a.leaseMinMs), "time left after a renewal");
        assert.equal((await b.claim(kit.claim(name, { wait: false }))).kind, "busy");
      }
      assert.equal(await a.release(holder), "released");
      await kit.passesOn(b, name, [holder]);
    },
  },
  {
    name: "a grant asked for again tells the time that is left, not the whole lease",
    async run(kit) {
      const a = await kit.open();
      const name = kit.name();
      const holder = kit.claim(name, { leaseMs: 4 * kit.step });
      granted(await a.claim(holder));
      await kit.pass(2);
      between(granted(await a.claim(holder)).leftMs, 0, 2.2 * kit.step, "time left when asked again");
      assert.equal(await a.release(holder), "released");
      await kit.passesOn(a, name, [holder]);
    },
  },
  {
    name: "a heartbeat may bring a longer lease, and a lease end never moves back",
    async run(kit) {
      const a = await kit.open();
      const name = kit.name();
      const holder = kit.claim(name, { leaseMs: 2 * kit.step });
      granted(await a.claim(holder));
      const { leftMs } = granted(await renewOne(a, { ...holder, leaseMs: 10 * kit.step }));
      between(leftMs, 9 * kit.step, 10 * kit.step, "time left after an extension");
      between(
        granted(await renewOne(a, { ...holder, leaseMs: kit.step })).leftMs,
        8 * kit.step,
        10 * kit.step,
        "after a shorter one",
      );
      await kit.pass(2.5);
      granted(await renewOne(a, holder));
      assert.equal(await a.release(holder), "released");
      await kit.passesOn(a, name, [holder]);
    },
  },
  {
    name: "each holder has its own lease: a dead reader leaves although live ones are renewed",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const live = kit.reader(name);
      const dead = kit.reader(name, { leaseMs: kit.step });
      granted(await a.claim(live));
      granted(await b.claim(dead));
      await kit.pass(1.5);
      granted(await renewOne(a, live));
      assert.equal((await renewOne(b, dead)).kind, "gone");
      assert.deepEqual(
        (await stateOf(a, name))?.holders.map((holder) => holder.id),
        [live.id],
      );
      assert.equal(await a.release(live), "released");
      await kit.passesOn(b, name, [live, dead], READERS_MAX);
    },
  },
  {
    name: "expired permits are free again, all of them",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const dead = kit.claim(name, { capacity: 4, units: 3, leaseMs: kit.step });
      granted(await a.claim(dead));
      await kit.pass(1.5);
      await kit.passesOn(b, name, [dead], 4);
    },
  },
  {
    name: "a waiter that shows no heartbeat does not block those behind it",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [holder, next] = [kit.claim(name), kit.claim(name)];
      const dead = kit.claim(name, { leaseMs: kit.step });
      granted(await a.claim(holder));
      queued(await b.claim(dead));
      queued(await a.claim(next));
      await kit.pass(1.5);
      assert.equal(await a.release(holder), "released");
      granted(await renewOne(a, next));
      assert.equal((await renewOne(b, dead)).kind, "gone");
      assert.equal(await a.release(next), "released");
      await kit.passesOn(b, name, [holder, dead, next]);
    },
  },
  {
    name: "a waiter keeps its position as long as it sends heartbeats",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [holder, next] = [kit.claim(name), kit.claim(name)];
      const patient = kit.claim(name, { leaseMs: 2 * kit.step });
      granted(await a.claim(holder));
      queued(await b.claim(patient));
      queued(await a.claim(next));
      for (let n = 0; n < 3; n += 1) {
        await kit.pass(1);
        await a.renew([holder, next]);
        queued(await renewOne(b, patient));
      }
      assert.equal(await a.release(holder), "released");
      granted(await renewOne(b, patient));
      assert.equal(await b.release(patient), "released");
      assert.equal(await a.release(next), "released");
      await kit.passesOn(b, name, [holder, patient, next]);
    },
  },
  {
    name: "the first waiter learns when the blocking lease ends, and its poll takes over from a dead holder",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const dead = kit.claim(name, { leaseMs: 2 * kit.step });
      const [first, second] = [kit.claim(name), kit.claim(name)];
      granted(await a.claim(dead));
      between(
        queued(await b.claim(first)).nextMs ?? -1,
        0,
        Math.max(2 * kit.step, a.leaseMinMs),
        "until the lease ends",
      );
      assert.equal(queued(await b.claim(second)).nextMs, null, "only the first waiter is told when to ask again");
      await kit.pass(2.5);
      granted(await renewOne(b, first));
      assert.ok(queued(await renewOne(b, second)).nextMs !== null, "it is the first now");
      assert.equal(await b.release(first), "released");
      granted(await renewOne(b, second));
      assert.equal(await b.release(second), "released");
      await kit.passesOn(a, name, [dead, first, second]);
    },
  },
  {
    name: "many claims are renewed in one call, each with its own answer in its own place",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const names = Array.from({ length: 130 }, () => kit.name());
      const holders = names.map((name) => kit.claim(name));
      const waiters = names.map((name) => kit.claim(name));
      // All at once: one after the other the first would have ended where that takes long.
      for (const answer of await Promise.all(holders.map((claim) => a.claim(claim)))) granted(answer);
      for (const answer of await Promise.all(waiters.map((claim) => b.claim(claim)))) queued(answer);
      const requests = names.flatMap((name, n) =>
        [holders[n], waiters[n], kit.claim(name)].filter((one) => one !== undefined),
      );
      const kinds = (await a.renew(requests)).map((answer) => answer.kind);
      assert.deepEqual(
        kinds,
        names.flatMap(() => ["granted", "queued", "gone"]),
      );
      assert.deepEqual(await a.renew([]), []);
      await Promise.all(waiters.map((claim) => b.release(claim)));
      await Promise.all(holders.map((claim) => a.release(claim)));
      await kit.passesOn(b, names[0] ?? "", [holders[0] ?? kit.claim("")]);
    },
  },
  {
    name: "a claim that arrives after its own release is gone: a release of an unknown id leaves a tombstone",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const late = kit.claim(name);
      assert.equal(await a.release(late), "gone");
      assert.equal((await a.claim(late)).kind, "gone");
      assert.equal((await b.claim({ ...late, wait: false })).kind, "gone", "whoever sends it");
      assert.equal((await renewOne(a, late)).kind, "gone");
      assert.equal(await stateOf(a, name), undefined, "no orphan");
      await kit.passesOn(b, name, [late]);
    },
  },
  {
    name: "a copy of a claim that arrives after grant and release stays dead",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const twice = kit.claim(name);
      granted(await a.claim(twice));
      assert.equal(await a.release(twice), "released");
      assert.equal((await a.claim(twice)).kind, "gone");
      const [holder, waiter] = [kit.claim(name), kit.claim(name)];
      granted(await b.claim(holder));
      queued(await a.claim(waiter));
      assert.equal(await a.release(waiter), "released");
      assert.equal((await a.claim(waiter)).kind, "gone");
      assert.equal((await stateOf(a, name))?.waiters.length, 0, "no orphan in the queue");
      assert.equal(await b.release(holder), "released");
      await kit.passesOn(b, name, [twice, waiter, holder]);
    },
  },
  {
    name: "a release without a tombstone frees the name like any other",
    async run(kit) {
      const a = await kit.open();
      const name = kit.name();
      const holder = kit.claim(name);
      granted(await a.claim(holder));
      assert.equal(await a.release({ ...holder, tombstone: "never" }), "released");
      // Where the library sends again on its own every release leaves a tombstone.
      assert.equal(await a.release({ ...holder, tombstone: "never" }), a.resends ? "revoked" : "gone");
      await kit.passesOn(a, name, [holder]);
    },
  },
];
