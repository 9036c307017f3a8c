import assert from "node:assert/strict";
import { UnsupportedError } from "../../core/errors.js";
import type { Excuse } from "./index.js";
import { granted, type Kit, renewOne, stateOf } from "./kit.js";

/** All of the cases that a mutex without a queue can still be held to. */
async function noQueue(kit: Kit): Promise<void> {
  const [a, b] = [await kit.open(), await kit.open()];
  const name = kit.name();
  const [holder, waiter, late] = [kit.claim(name), kit.claim(name, { exact: true }), kit.claim(name)];
  const { token } = granted(await a.claim(holder));
  assert.equal((await b.claim(waiter)).kind, "busy", "whoever waits has to ask again");
  assert.equal((await b.claim({ ...waiter, wait: false })).kind, "busy");
  assert.equal(await b.release(late), "gone", "what was never asked for is gone, and leaves a tombstone");
  assert.equal((await b.claim(late)).kind, "gone");
  const again = granted(await a.claim(holder));
  assert.equal(again.token, token, "asked again it takes once");
  assert.ok(again.leftMs <= holder.leaseMs);
  const [renewed, unknown] = await a.renew([holder, { name, id: waiter.id }]);
  assert.deepEqual([renewed?.kind, unknown?.kind], ["granted", "gone"], "each has its own answer");
  assert.equal((await stateOf(b, name))?.holders[0]?.id, holder.id);
  assert.equal(await b.release(holder), "released", "somebody else may release it");
  assert.deepEqual(await renewOne(a, holder), { kind: "gone", revoked: true }, "and its holder is told");
  assert.equal(await a.release({ ...holder, tombstone: "never" }), "revoked");
  const next = granted(await b.claim(waiter));
  assert.ok(next.token > token && next.floor === next.token, "tokens grow over every grant");
  assert.deepEqual(next.live, [next.token]);
  assert.equal(await b.resize(waiter, 1), "resized");
  assert.equal(await b.resize(holder, 1), "gone");
  assert.equal(await b.release(waiter), "released");
  const raised = granted(await a.claim(kit.claim(name, { tokenAtLeast: next.token + 1000 })));
  assert.ok(raised.token >= next.token + 1000, "a suggested token is kept when it is higher");
}

async function mutexOnly(kit: Kit): Promise<void> {
  const a = await kit.open();
  const name = kit.name();
  for (const ask of [
    kit.claim(name, { capacity: 2 }),
    kit.claim(name, { capacity: 3, units: 2 }),
    kit.reader(name),
    kit.writer(name),
  ])
    await assert.rejects(a.claim(ask), UnsupportedError);
  await assert.rejects(a.setCapacity(name, 1, 2), UnsupportedError);
  assert.equal(await stateOf(a, name), undefined, "what is refused leaves nothing behind");
  granted(await a.claim(kit.claim(name)));
}

const because = (reason: string, instead: Excuse["instead"], names: readonly string[]): Record<string, Excuse> =>
  Object.fromEntries(names.map((name) => [name, { reason, instead }]));

/**
 * The cases that an engine cannot pass whose store has room for a mutex and nothing else: no queue, no units, no cells, no list of
 * names. Each is tested as what such an engine does instead. Leave out what yours can do after all.
 */
export const MUTEX_ONLY: Readonly<Record<string, Excuse>> = {
  ...because("the store keeps no queue", noQueue, [
    "waiting claims are granted in order of arrival, one at a time",
    "a claim sent again takes once: the same token, no more time, no second position",
    "a claim withdrawn while it waits leaves its position to the next",
    "a waiter that shows no heartbeat does not block those behind it",
    "a waiter keeps its position as long as it sends heartbeats",
    "the first waiter learns when the blocking lease ends, and its poll takes over from a dead holder",
    "many claims are renewed in one call, each with its own answer in its own place",
    "a copy of a claim that arrives after grant and release stays dead",
    "the release itself grants the first waiter: nobody comes between, pushed or not",
    "a grant after waiting is pushed to the client that asked, with its token, and to nobody else",
    "the hand-over leaves the waiter lease as it is: a grant that nobody confirms ends with it",
    "the confirmation starts the lease proper",
    "a claim's token is minted when it arrives: told while it waits, and the one that it holds with",
    "a claim whose lease has ended is not the one that a new claim is told to stand behind",
    "a claim that its client has let go on already is granted by the release without a push",
    "a release by somebody else is told by the holder's next call too, whichever comes first",
    "a listener that left hears nothing, the others do",
    "tokens are positive safe integers that grow over every grant: free, handed over, expired, idle in between",
    "a suggested token is kept when it is higher, raised by a renewal, and never gone below",
    "inspect tells since when a claim waits, and from its grant on since when it holds; nothing but the grant resets it",
    "clients take turns in order of arrival, with growing tokens",
  ]),
  ...because("the store has mutexes only", mutexOnly, [
    "a claim that would fit does not overtake one that waits",
    "permits add up to the capacity and not beyond, and come back exactly once",
    "several permits are granted all or none",
    "readers share, a writer is alone, and later readers wait behind a waiting writer",
    "another capacity is a mismatch while the name is in use, and forgotten when it is idle",
    "a known id is answered before the capacity is compared",
    "withdrawing a large claim lets in the smaller ones behind it",
    "each holder has its own lease: a dead reader leaves although live ones are renewed",
    "expired permits are free again, all of them",
    "a claim that waits is told on arrival which claim of its own client is directly before it, and no other",
    "a writer becomes a reader without letting go; units never grow",
    "what somebody else released cannot be shrunk, and does not come back by it",
    "a larger capacity lets in what now fits; new claims must agree with it",
    "a smaller capacity leaves holders alone and refuses waiters that can never be served",
    "holders beyond a smaller capacity count for each other's floor, whoever asks",
    "setting the capacity of an idle name leaves nothing behind",
    "a grant keeps its token: asked again, renewed, extended, shrunk",
    "the floor is the lowest live token: its own for an exclusive grant, the oldest holder's for a shared one",
    "the floor rises when the oldest holder's lease ends",
    "an exact grant lists all live tokens, whether granted at once or after waiting",
    "inspect shows holders by token and waiters by arrival, with owner, data, units and time left",
    "inspect shows one moment: while claims come and go each stands there once, and no more is held than fits",
    "inspect tells of each of several holders since when it holds, also of one that shrinks, and of those that this lets in",
    "inspect tells since when claims hold that a larger capacity, or somebody else's release, let in",
    "multi-lock: clients that name the same locks in different orders all get them, all or none",
  ]),
  ...because(
    "no token can be kept for later",
    async (kit) => {
      const a = await kit.open();
      assert.notEqual(a.reserves, true);
      await assert.rejects(a.claim(kit.claim(kit.name(), { reserve: 1 })), UnsupportedError);
    },
    ["tokens that a claim keeps for itself are nobody else's, whether it holds or waits"],
  ),
  ...because(
    "the store cannot list its names",
    async (kit) => {
      const a = await kit.open();
      await assert.rejects(async () => void (await a.inspect()[Symbol.asyncIterator]().next()), UnsupportedError);
    },
    ["inspect finds names by prefix, and neither idle nor expired ones"],
  ),
  ...because("the store keeps no cells", async (kit) => assert.equal((await kit.open()).cells, null), [
    "a cell is written over the version that was read, once per operation",
    "of many writers over one version exactly one wins",
    "a watcher of a cell learns of changes by others, until it leaves",
  ]),
};
