import assert from "node:assert/strict";
import { type Case, granted, queued, renewOne } from "./kit.js";

/** Fencing tokens, floors, and the exact set. */
export const tokens: readonly Case[] = [
  {
    name: "tokens are positive safe integers that grow over every grant: free, handed over, expired, idle in between",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const seen: number[] = [];
      for (let n = 0; n < 5; n += 1) {
        const claim = kit.claim(name);
        seen.push(granted(await (n % 2 ? a : b).claim(claim)).token);
        assert.equal(await a.release({ ...claim, ...(n > 2 ? { tombstone: "never" } : {}) }), "released");
      }
      const [holder, waiter] = [kit.claim(name, { leaseMs: kit.step }), kit.claim(name)];
      seen.push(granted(await a.claim(holder)).token);
      queued(await b.claim(waiter));
      await kit.pass(1.5);
      seen.push(granted(await renewOne(b, waiter)).token);
      assert.equal(await b.release(waiter), "released");
      const last = kit.claim(name);
      seen.push(granted(await b.claim(last)).token);
      assert.equal(await b.release(last), "released");
      for (const token of seen) assert.ok(Number.isSafeInteger(token) && token > 0, `${token}`);
      assert.deepEqual(
        seen,
        [...new Set(seen)].toSorted((one, two) => one - two),
      );
      await kit.passesOn(a, name, [holder, waiter, last]);
    },
  },
  {
    name: "a grant keeps its token: asked again, renewed, extended, shrunk",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const [holder, waiter] = [kit.claim(name, { capacity: 3, units: 3 }), kit.claim(name, { capacity: 3, units: 3 })];
      const { token } = granted(await a.claim(holder));
      assert.equal(granted(await a.claim(holder)).token, token);
      assert.equal(granted(await renewOne(a, holder)).token, token);
      assert.equal(granted(await renewOne(a, { ...holder, leaseMs: 40 * kit.step })).token, token);
      assert.equal(await a.resize(holder, 2), "resized");
      assert.equal(granted(await renewOne(a, holder)).token, token);
      queued(await b.claim(waiter));
      assert.equal(await a.release(holder), "released");
      const next = granted(await renewOne(b, waiter)).token;
      assert.ok(next > token);
      assert.equal(granted(await renewOne(b, waiter)).token, next);
      assert.equal(granted(await b.claim(waiter)).token, next);
      assert.equal(await b.release(waiter), "released");
      await kit.passesOn(a, name, [holder, waiter], 3);
    },
  },
  {
    name: "the floor is the lowest live token: its own for an exclusive grant, the oldest holder's for a shared one",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const alone = kit.claim(name);
      const exclusive = granted(await a.claim(alone));
      assert.equal(exclusive.floor, exclusive.token);
      assert.equal(await a.release(alone), "released");

      const ask = { capacity: 3 };
      const [one, two, three] = [kit.claim(name, ask), kit.claim(name, ask), kit.claim(name, ask)];
      const first = granted(await a.claim(one));
      assert.equal(granted(await b.claim(two)).floor, first.token);
      assert.equal(granted(await a.claim(three)).floor, first.token);
      assert.equal(await a.release(one), "released");
      const second = granted(await renewOne(b, two)).token;
      const four = kit.claim(name, ask);
      assert.equal(granted(await a.claim(four)).floor, second);
      for (const claim of [two, three, four]) assert.equal(await b.release(claim), "released");
      await kit.passesOn(a, name, [alone, one, two, three, four], 3);
    },
  },
  {
    name: "the floor rises when the oldest holder's lease ends",
    async run(kit) {
      const a = await kit.open();
      const name = kit.name();
      const dead = kit.claim(name, { capacity: 3, leaseMs: kit.step });
      const [two, three] = [kit.claim(name, { capacity: 3 }), kit.claim(name, { capacity: 3 })];
      const first = granted(await a.claim(dead)).token;
      const second = granted(await a.claim(two));
      assert.equal(second.floor, first);
      await kit.pass(1.5);
      assert.equal(granted(await a.claim(three)).floor, second.token);
      assert.equal(await a.release(two), "released");
      assert.equal(await a.release(three), "released");
      await kit.passesOn(a, name, [dead, two, three], 3);
    },
  },
  {
    name: "an exact grant lists all live tokens, whether granted at once or after waiting",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const ask = { capacity: 2, exact: true };
      const [one, two, three] = [kit.claim(name, ask), kit.claim(name, ask), kit.claim(name, ask)];
      const first = granted(await a.claim(one));
      assert.deepEqual(first.live, [first.token]);
      const second = granted(await b.claim(two));
      assert.deepEqual(second.live, [first.token, second.token]);
      queued(await a.claim(three));
      assert.equal(await a.release(one), "released");
      const third = granted(await renewOne(a, three));
      assert.deepEqual(third.live, [second.token, third.token]);
      assert.equal(granted(await renewOne(b, two)).live?.length, 2);
      assert.equal(await b.release(two), "released");
      assert.equal(await a.release(three), "released");
      const plain = kit.claim(name);
      assert.equal(granted(await a.claim(plain)).live, undefined, "only for those who ask");
      assert.equal(await a.release(plain), "released");
      await kit.passesOn(a, name, [one, two, three, plain]);
    },
  },
  {
    name: "a suggested token is kept when it is higher, raised by a renewal, and never gone below",
    async run(kit) {
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
      const waiter = kit.claim(name, { tokenAtLeast: far + 100 });
      assert.equal(queued(await a.claim(waiter)).token, far + 100, "on arrival");
      assert.equal(granted(await renewOne(a, { ...high, tokenAtLeast: far + 200 })).token, far + 7, "somebody waits");
      assert.equal(await a.release(high), "released");
      assert.equal(granted(await renewOne(a, waiter)).token, far + 100);
      assert.equal(await a.release(waiter), "released");
      const low = kit.claim(name, { tokenAtLeast: 1 });
      assert.ok(granted(await a.claim(low)).token > far + 100);
      assert.equal(await a.release(low), "released");
      await kit.passesOn(a, name, [plain, high, waiter, low]);
    },
  },
  {
    name: "tokens that a claim keeps for itself are nobody else's, whether it holds or waits",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      // Above the store's time, which would part the tokens by itself.
      const plain = kit.claim(name);
      const far = granted(await a.claim(plain)).token + 1_000_000_000;
      assert.equal(await a.release(plain), "released");
      const one = kit.claim(name, { reserve: 10, tokenAtLeast: far });
      const [two, three] = [kit.claim(name, { reserve: 5 }), kit.claim(name)];
      assert.equal(granted(await a.claim(one)).token, far);
      assert.equal(queued(await b.claim(two)).token, far + 11);
      assert.equal(queued(await a.claim(three)).token, far + 17);
      assert.equal(granted(await a.claim(one)).token, far, "asked again it keeps no more");
      for (const claim of [one, two, three]) assert.equal(await a.release(claim), "released");
      const next = kit.claim(name, { wait: false });
      assert.equal(granted(await b.claim(next)).token, far + 18);
      assert.equal(await b.release(next), "released");
      await kit.passesOn(a, name, [plain, one, two, three, next]);
    },
  },
];
