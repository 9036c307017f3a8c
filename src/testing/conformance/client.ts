import assert from "node:assert/strict";
import type { ClaimAnswer } from "../../core/engine.js";
import { AcquireTimeoutError, ClaimEndedError, DrainingError, LockLostError } from "../../core/errors.js";
import { settle } from "../fake-clock.js";
import { type Case, granted, stateOf } from "./kit.js";

/** A whole client on the engine: waiting, being told, leaving. The core is the same for all; these show that it fits. */
export const client: readonly Case[] = [
  {
    name: "clients take turns in order of arrival, with growing tokens",
    async run(kit) {
      const clients = [await kit.connect(), await kit.connect(), await kit.connect()];
      const name = kit.name();
      const turns: { client: number; token: number }[] = [];
      const first = await clients[0]?.mutex(name).acquire();
      const waiting: Promise<void>[] = [];
      for (const n of [1, 2, 0, 2, 1]) {
        const locks = clients[n];
        assert.ok(locks);
        let isQueued = false;
        locks.on("queued", () => (isQueued = true));
        waiting.push(locks.mutex(name).using((hold) => void turns.push({ client: n, token: hold.token })));
        await kit.until(20, "the claim is queued", () => isQueued);
      }
      await first?.release();
      await kit.settled(Promise.all(waiting));
      assert.deepEqual(
        turns.map((turn) => turn.client),
        [1, 2, 0, 2, 1],
      );
      const tokens = [first?.token ?? 0, ...turns.map((turn) => turn.token)];
      assert.deepEqual(
        tokens,
        tokens.toSorted((one, two) => one - two),
      );
      await kit.passesOn(await kit.open(), name, []);
    },
  },
  {
    name: "a deaf client is served all the same: the push is a hint, the store is the truth",
    async run(kit) {
      const [a, deaf] = [await kit.connect(), await kit.connect({}, { push: () => {} })];
      const name = kit.name();
      const holding = await a.mutex(name).acquire();
      const waiting = deaf.mutex(name).acquire({ leaseMs: 3 * kit.step });
      await kit.pass(0.5);
      await holding.release();
      const hold = await kit.settled(waiting);
      hold.throwIfLost();
      await hold.release();
      await kit.passesOn(await kit.open(), name, [holding, hold]);
    },
  },
  {
    name: "a holder that is cut off is told before the next one is granted",
    async run(kit) {
      const away = () => Promise.reject(new Error("cut off"));
      const settings = { leaseMs: 2 * kit.step, callTimeoutMs: kit.step };
      const cutOff = await kit.connect(settings, { renew: away, release: away });
      const other = await kit.connect({ leaseMs: 2 * kit.step });
      const name = kit.name();
      const lost = await cutOff.mutex(name).acquire();
      const { signal } = lost;
      // By state, which compares clocks: on a busy machine the signal's timer may stand behind the grant in one phase.
      const granting = other.mutex(name).acquire();
      const next = await kit.settled(granting.then((hold) => ({ hold, before: lost.state })));
      assert.equal(next.before, "lost");
      assert.ok(signal.aborted);
      assert.throws(() => lost.throwIfLost(), LockLostError);
      assert.ok(next.hold.token > lost.token);
      await assert.rejects(lost.release(), LockLostError);
      await next.hold.release();
      await kit.passesOn(await kit.open(), name, [lost, next.hold]);
    },
  },
  {
    name: "leaving early takes the claim out of the store",
    async run(kit) {
      const [a, b] = [await kit.connect(), await kit.connect()];
      const engine = await kit.open();
      const name = kit.name();
      const holding = await a.mutex(name).acquire();
      const controller = new AbortController();
      const aborted = b.mutex(name).acquire({ signal: controller.signal });
      const timed = b.mutex(name).acquire({ waitMs: kit.step / 2 });
      // Awaited below: until then its rejection must not count as unhandled.
      aborted.catch(() => {});
      await assert.rejects(kit.settled(timed), AcquireTimeoutError);
      controller.abort(new Error("changed my mind"));
      await assert.rejects(aborted, /changed my mind/);
      await kit.until(10, "nobody waits any more", async () => (await stateOf(engine, name))?.waiters.length === 0);
      await holding.release();
      await kit.passesOn(engine, name, [holding]);
    },
  },
  {
    name: "draining takes waiting claims out of the store, and lets holders finish",
    async run(kit) {
      const [a, b] = [await kit.connect(), await kit.connect()];
      const engine = await kit.open();
      const [name, other] = [kit.name(), kit.name()];
      const holding = await a.mutex(name).acquire();
      const others = await b.mutex(other).acquire();
      let isQueued = false;
      a.on("queued", () => (isQueued = true));
      const waiting = a.mutex(other).acquire();
      // Awaited below: until then its rejection must not count as unhandled.
      waiting.catch(() => {});
      const waits = engine.guarantees.order !== "none";
      if (waits) await kit.until(20, "the claim is queued", () => isQueued);
      const draining = a.drain({ graceMs: 100 * kit.step });
      await assert.rejects(waiting, DrainingError);
      await assert.rejects(a.mutex(kit.name()).acquire(), DrainingError);
      await kit.until(20, "nobody waits any more", async () => (await stateOf(engine, other))?.waiters.length === 0);
      holding.throwIfLost();
      assert.ok(holding.draining.aborted);
      await holding.release();
      await kit.settled(draining);
      await others.release();
      await kit.passesOn(engine, name, [holding]);
    },
  },
  {
    name: "a grant that arrives after its asker left is given back",
    async run(kit) {
      let arrive = async (): Promise<void> => {};
      const hooks = {
        claim: (call: () => Promise<ClaimAnswer>) =>
          new Promise<ClaimAnswer>((resolve) => {
            arrive = async () => resolve(await call());
          }),
      };
      const late = await kit.connect({}, hooks);
      const engine = await kit.open();
      const name = kit.name();
      const controller = new AbortController();
      const asking = late.mutex(name).acquire({ signal: controller.signal });
      await settle();
      controller.abort(new Error("left"));
      await assert.rejects(asking, /left/);
      await kit.pass(0.2);
      await arrive();
      await kit.until(10, "no orphan", async () => (await stateOf(engine, name)) === undefined);
      await kit.passesOn(engine, name, []);
    },
  },
  {
    name: "a fixed lease granted after waiting lasts as long as was asked, and ends by itself",
    async run(kit) {
      const [a, b] = [await kit.connect(), await kit.connect()];
      const name = kit.name();
      const holding = await a.mutex(name).acquire();
      const waiting = b.mutex(name).acquire({ renew: false, leaseMs: 3 * kit.step });
      await kit.pass(1);
      await holding.release();
      const fixed = await kit.settled(waiting);
      assert.ok(fixed.remainingMs > 2 * kit.step, `${fixed.remainingMs} ms left`);
      await fixed.extend(4 * kit.step);
      assert.ok(fixed.remainingMs > 3 * kit.step, `${fixed.remainingMs} ms left after the extension`);
      await kit.pass(4.5);
      assert.throws(() => fixed.throwIfLost(), LockLostError);
      const next = await kit.settled(a.mutex(name).acquire({ waitMs: 10 * kit.step }));
      assert.ok(next.token > fixed.token);
      await next.release();
      await kit.passesOn(await kit.open(), name, [holding, fixed, next]);
    },
  },
  {
    name: "a hold handed over goes on in another client, which alone can release it",
    async run(kit) {
      const [a, b] = [await kit.connect(), await kit.connect()];
      const name = kit.name();
      const hold = await a.mutex(name).acquire({ leaseMs: 5 * kit.step });
      const data = JSON.parse(JSON.stringify(hold.handOver()));
      const adopted = await b.adopt(data);
      assert.equal(adopted.token, hold.token);
      await kit.pass(6);
      adopted.throwIfLost();
      await hold.release();
      assert.equal(await a.mutex(name).tryAcquire(), null);
      await adopted.release();
      await assert.rejects(b.adopt(data), ClaimEndedError);
      await kit.passesOn(await kit.open(), name, [adopted]);
    },
  },
  {
    name: "closing a client releases what it holds and withdraws what it waits for",
    async run(kit) {
      const [a, b] = [await kit.connect(), await kit.connect()];
      const engine = await kit.open();
      const [held, waited] = [kit.name(), kit.name()];
      const other = await b.mutex(waited).acquire();
      const hold = await a.mutex(held).acquire();
      const waiting = a.mutex(waited).acquire();
      // Awaited below: until then its rejection must not count as unhandled.
      waiting.catch(() => {});
      await kit.pass(0.2);
      await kit.settled(a.close());
      await assert.rejects(waiting, /closed/);
      assert.equal(await stateOf(engine, held), undefined);
      assert.equal((await stateOf(engine, waited))?.waiters.length, 0);
      const after = kit.claim(held, { wait: false });
      granted(await engine.claim(after));
      assert.equal(await engine.release(after), "released");
      await other.release();
      await kit.passesOn(engine, waited, [other]);
      await kit.passesOn(engine, held, [hold]);
    },
  },
];
