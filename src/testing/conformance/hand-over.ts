import assert from "node:assert/strict";
import { READERS_MAX } from "../../core/limits.js";
import { between, type Case, granted, queued, renewOne, stateOf } from "./kit.js";

/** Hand-over inside the releasing step, pushes as hints, and changes to what is held. */
export const handOver: readonly Case[] = [
  {
    name: "the release itself grants the first waiter: nobody comes between, pushed or not",
    async run(kit) {
      const [a, b, c] = [await kit.open(), await kit.open(), await kit.open()];
      const name = kit.name();
      const [holder, waiter] = [kit.claim(name), kit.claim(name)];
      granted(await a.claim(holder));
      queued(await b.claim(waiter));
      assert.equal(await a.release(holder), "released");
      assert.equal((await c.claim(kit.claim(name, { wait: false }))).kind, "busy");
      assert.deepEqual(
        (await stateOf(c, name))?.holders.map((one) => one.id),
        [waiter.id],
        "the grant is in the store",
      );
      granted(await renewOne(b, waiter));
      assert.equal(await b.release(waiter), "released");
      await kit.passesOn(c, name, [holder, waiter]);
    },
  },
  {
    name: "a grant after waiting is pushed to the client that asked, with its token, and to nobody else",
    async run(kit) {
      const [a, b, c] = [await kit.open(), await kit.open(), await kit.open()];
      const [toA, toB, toC] = [kit.listen(a), kit.listen(b), kit.listen(c)];
      const name = kit.name();
      const [holder, waiter, last] = [kit.claim(name), kit.claim(name), kit.claim(name)];
      granted(await a.claim(holder));
      queued(await b.claim(waiter));
      queued(await c.claim(last));
      assert.equal(await a.release(holder), "released");
      const pushed = () => toB.filter((event) => event.kind === "granted" && event.id === waiter.id);
      if (a.guarantees.wake === "push") await kit.until(10, "the grant is pushed", () => pushed().length > 0);
      const { token, floor } = granted(await renewOne(b, waiter));
      for (const event of pushed()) assert.deepEqual(event, { kind: "granted", name, id: waiter.id, token, floor });
      assert.deepEqual(
        [...toA, ...toC].filter((event) => event.kind === "granted"),
        [],
      );
      assert.equal(await b.release(waiter), "released");
      assert.equal(await c.release(last), "released");
      await kit.passesOn(a, name, [holder, waiter, last]);
    },
  },
  {
    name: "the hand-over leaves the waiter lease as it is: a grant that nobody confirms ends with it",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const holder = kit.claim(name);
      const dead = kit.claim(name, { leaseMs: 2 * kit.step });
      granted(await a.claim(holder));
      queued(await b.claim(dead));
      await kit.pass(1.3);
      assert.equal(await a.release(holder), "released");
      await kit.pass(1);
      // 2.3 steps after its last heartbeat; a lease counted from the hand-over would last until 3.3.
      const next = kit.claim(name, { wait: false });
      granted(await a.claim(next));
      assert.equal((await renewOne(b, dead)).kind, "gone");
      assert.equal(await a.release(next), "released");
      await kit.passesOn(a, name, [holder, dead, next]);
    },
  },
  {
    name: "the confirmation starts the lease proper",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const holder = kit.claim(name);
      const waiter = kit.claim(name, { leaseMs: 3 * kit.step });
      granted(await a.claim(holder));
      queued(await b.claim(waiter));
      await kit.pass(1);
      assert.equal(await a.release(holder), "released");
      const { leftMs } = granted(await renewOne(b, waiter));
      between(leftMs, 2.5 * kit.step, Math.max(3 * kit.step, b.leaseMinMs), "time left after the confirmation");
      await kit.pass(2.4);
      granted(await renewOne(b, waiter));
      assert.equal(await b.release(waiter), "released");
      await kit.passesOn(a, name, [holder, waiter]);
    },
  },
  {
    name: "a claim's token is minted when it arrives: told while it waits, and the one that it holds with",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const toB = kit.listen(b);
      const [first, second, waiter] = [kit.claim(name), kit.claim(name), kit.claim(name)];
      const { token } = granted(await a.claim(first));
      const next = queued(await a.claim(second)).token;
      const last = queued(await b.claim(waiter)).token;
      assert.ok(token < next && next < last, `${token} < ${next} < ${last}`);
      assert.equal(queued(await b.claim(waiter)).token, last, "the same when it is sent again");
      assert.equal(queued(await renewOne(b, waiter)).token, last, "and to a heartbeat");
      assert.equal(await a.release(first), "released");
      assert.equal(granted(await renewOne(a, second)).token, next);
      assert.equal(await a.release(second), "released");
      if (b.guarantees.wake === "push") {
        const pushed = () =>
          toB.some((event) => event.kind === "granted" && event.id === waiter.id && event.token === last);
        await kit.until(10, "the grant is pushed with that token", pushed);
      }
      assert.equal(granted(await renewOne(b, waiter)).token, last);
      assert.equal(await b.release(waiter), "released");
      await kit.passesOn(a, name, [first, second, waiter]);
    },
  },
  {
    name: "a claim that waits is told on arrival which claim of its own client is directly before it, and no other",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const ask = { capacity: 2 };
      const claim = () => kit.claim(name, ask);
      const [one, two, three, four, five] = [claim(), claim(), claim(), claim(), claim()];
      granted(await b.claim(one));
      granted(await a.claim(two));
      assert.equal(queued(await a.claim(three)).ahead, two.id, "the youngest holder");
      assert.equal(queued(await a.claim(four)).ahead, three.id, "the last that waits");
      assert.equal(queued(await b.claim(five)).ahead, undefined, "not another client's");
      assert.equal(queued(await a.claim(four)).ahead, undefined, "only on arrival");
      assert.equal(queued(await renewOne(a, four)).ahead, undefined, "only on arrival");
      assert.equal(await a.release(four), "released");
      const six = claim();
      assert.equal(queued(await b.claim(six)).ahead, five.id);
      for (const claim of [one, two, three, five, six]) assert.equal(await a.release(claim), "released");
      await kit.passesOn(a, name, [one, two, three, four, five, six], 2);
    },
  },
  {
    name: "a claim whose lease has ended is not the one that a new claim is told to stand behind",
    async run(kit) {
      const a = await kit.open();
      const name = kit.name();
      const [holder, waiter, next] = [kit.claim(name), kit.claim(name), kit.claim(name)];
      const dead = kit.claim(name, { leaseMs: kit.step });
      granted(await a.claim(holder));
      queued(await a.claim(waiter));
      assert.equal(queued(await a.claim(dead)).ahead, waiter.id);
      await kit.pass(1.5);
      assert.notEqual(queued(await a.claim(next)).ahead, dead.id);
      for (const claim of [holder, waiter, next]) assert.equal(await a.release(claim), "released");
      await kit.passesOn(a, name, [holder, waiter, dead, next]);
    },
  },
  {
    name: "a claim that its client has let go on already is granted by the release without a push",
    async run(kit) {
      const a = await kit.open();
      const toA = kit.listen(a);
      const pushedTo = (id: string) => toA.some((event) => event.kind === "granted" && event.id === id);
      // Without a tombstone a store may hand over in a shorter way.
      for (const tombstone of ["always", "never"] as const) {
        const name = kit.name();
        const [one, two, three] = [kit.claim(name), kit.claim(name), kit.claim(name)];
        granted(await a.claim(one));
        queued(await a.claim(two));
        queued(await a.claim(three));
        assert.equal(await a.release({ ...one, tombstone, to: two.id }), "released");
        granted(await renewOne(a, two));
        // Said of somebody who is not next, it changes nothing.
        assert.equal(await a.release({ ...two, tombstone, to: one.id }), "released");
        if (a.guarantees.wake === "push") await kit.until(10, "the next is pushed to", () => pushedTo(three.id));
        assert.ok(!pushedTo(two.id), "pushes come in order: that one was left out");
        granted(await renewOne(a, three));
        assert.equal(await a.release(three), "released");
        await kit.passesOn(a, name, [one, two, three]);
      }
    },
  },
  {
    name: "a release by somebody else is told to the holder",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const toA = kit.listen(a);
      const name = kit.name();
      const holder = kit.claim(name);
      granted(await a.claim(holder));
      assert.equal(await b.release(holder), "released");
      const lost = () => toA.some((event) => event.kind === "lost" && event.id === holder.id);
      if (a.guarantees.wake === "push") await kit.until(10, "the loss is pushed", lost);
      assert.deepEqual(await renewOne(a, holder), { kind: "gone", revoked: true });
      await kit.passesOn(b, name, [holder]);
    },
  },
  {
    name: "a release by somebody else is told by the holder's next call too, whichever comes first",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [renewed, released, next] = [kit.claim(name), kit.claim(name), kit.claim(name)];
      granted(await a.claim(renewed));
      assert.equal(await b.release(renewed), "released");
      assert.deepEqual(await renewOne(a, renewed), { kind: "gone", revoked: true }, "told by a renewal");
      granted(await a.claim(released));
      queued(await b.claim(next));
      assert.equal(await b.release(released), "released");
      assert.equal(await a.release({ ...released, tombstone: "never" }), "revoked", "told by its own release");
      granted(await renewOne(b, next));
      assert.equal(await b.release(next), "released");
      await kit.passesOn(b, name, [renewed, released, next]);
    },
  },
  {
    name: "a listener that left hears nothing, the others do",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const heard: string[] = [];
      const unlisten = a.listen(() => heard.push("left"));
      a.listen((event) => heard.push(event.kind));
      unlisten();
      const name = kit.name();
      const [holder, waiter] = [kit.claim(name), kit.claim(name)];
      granted(await b.claim(holder));
      queued(await a.claim(waiter));
      assert.equal(await b.release(holder), "released");
      if (a.guarantees.wake === "push") await kit.until(10, "the grant is pushed", () => heard.includes("granted"));
      assert.ok(!heard.includes("left"));
      granted(await renewOne(a, waiter));
      assert.equal(await a.release(waiter), "released");
      await kit.passesOn(b, name, [holder, waiter]);
    },
  },
  {
    name: "a writer becomes a reader without letting go; units never grow",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [writer, other] = [kit.writer(name), kit.writer(name)];
      const reader = kit.reader(name);
      const { token } = granted(await a.claim(writer));
      queued(await b.claim(reader));
      queued(await b.claim(other));
      assert.equal(await a.resize(writer, READERS_MAX), "resized");
      assert.equal(await a.resize(writer, 1), "resized");
      assert.equal(await a.resize(writer, 1), "resized", "also when the answer was lost and it is sent again");
      assert.equal(await a.resize(writer, 2), "refused");
      assert.equal(await b.resize(other, 1), "refused", "a waiting claim has nothing to shrink");
      granted(await renewOne(b, reader));
      assert.equal(granted(await renewOne(a, writer)).token, token);
      queued(await renewOne(b, other));
      assert.equal(await a.release(writer), "released");
      assert.equal(await a.resize(writer, 1), "gone");
      queued(await renewOne(b, other));
      assert.equal(await b.release(reader), "released");
      granted(await renewOne(b, other));
      assert.equal(await b.release(other), "released");
      await kit.passesOn(a, name, [writer, reader, other], READERS_MAX);
    },
  },
  {
    name: "what somebody else released cannot be shrunk, and does not come back by it",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const all = { capacity: READERS_MAX, units: READERS_MAX };
      const [writer, next] = [kit.claim(name, all), kit.claim(name, all)];
      granted(await a.claim(writer));
      assert.equal(await b.release(writer), "released");
      const { token } = granted(await b.claim(next));
      assert.equal(await a.resize(writer, 1), "gone");
      assert.deepEqual(
        (await stateOf(b, name))?.holders.map((holder) => holder.token),
        [token],
      );
      assert.equal(await b.release(next), "released");
      await kit.passesOn(a, name, [writer, next], READERS_MAX);
    },
  },
  {
    name: "a larger capacity lets in what now fits; new claims must agree with it",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [holder, waiter] = [kit.claim(name, { capacity: 2, units: 2 }), kit.claim(name, { capacity: 2, units: 2 })];
      granted(await a.claim(holder));
      queued(await b.claim(waiter));
      assert.deepEqual(await a.setCapacity(name, 3, 5), { kind: "mismatch", capacity: 2 });
      assert.deepEqual(await a.setCapacity(name, 2, 5), { kind: "set" });
      assert.deepEqual(await b.setCapacity(name, 2, 5), { kind: "set" }, "also when it was so already");
      granted(await renewOne(b, waiter));
      assert.deepEqual(await a.claim(kit.claim(name, { capacity: 2 })), { kind: "mismatch", capacity: 5 });
      const fifth = kit.claim(name, { capacity: 5, wait: false });
      granted(await a.claim(fifth));
      assert.equal((await a.claim(kit.claim(name, { capacity: 5, wait: false }))).kind, "busy");
      for (const claim of [holder, waiter, fifth]) assert.equal(await a.release(claim), "released");
      await kit.passesOn(b, name, [holder, waiter, fifth], 3);
    },
  },
  {
    name: "a smaller capacity leaves holders alone and refuses waiters that can never be served",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const holder = kit.claim(name, { capacity: 4, units: 3 });
      const tooLarge = kit.claim(name, { capacity: 4, units: 3 });
      const small = kit.claim(name, { capacity: 4, units: 2 });
      granted(await a.claim(holder));
      queued(await b.claim(tooLarge));
      queued(await b.claim(small));
      assert.deepEqual(await b.setCapacity(name, 4, 2), { kind: "set" });
      granted(await renewOne(a, holder));
      assert.equal((await renewOne(b, tooLarge)).kind, "gone");
      queued(await renewOne(b, small));
      assert.equal(await a.release(holder), "released");
      granted(await renewOne(b, small));
      assert.equal((await a.claim(kit.claim(name, { capacity: 2, wait: false }))).kind, "busy");
      assert.equal(await b.release(small), "released");
      await kit.passesOn(a, name, [holder, tooLarge, small], 2);
    },
  },
  {
    name: "holders beyond a smaller capacity count for each other's floor, whoever asks",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const ask = { capacity: 3, chosen: true } as const;
      const [older, newer] = [kit.claim(name, ask), kit.claim(name, ask)];
      const { token: oldest } = granted(await a.claim(older));
      granted(await a.claim(newer));
      assert.deepEqual(await a.setCapacity(name, 3, 1), { kind: "set" });
      for (const engine of [a, b]) {
        assert.equal(granted(await engine.claim(newer)).floor, oldest);
        assert.equal(granted(await renewOne(engine, newer)).floor, oldest);
      }
      for (const claim of [older, newer]) assert.equal(await a.release(claim), "released");
      await kit.passesOn(b, name, [older, newer], 1);
    },
  },
  {
    name: "setting the capacity of an idle name leaves nothing behind",
    async run(kit) {
      const a = await kit.open();
      const name = kit.name();
      assert.deepEqual(await a.setCapacity(name, 1, 3), { kind: "set" });
      assert.equal(await stateOf(a, name), undefined);
      await kit.passesOn(a, name, [], 9);
    },
  },
];
