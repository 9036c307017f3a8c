import assert from "node:assert/strict";
import type { ClaimAnswer, ClaimRequest } from "../../../src/core/engine.js";
import { redisEngine } from "../../../src/engines/redis/index.js";
import { type Build, virtualRedis } from "../redis.js";

const NAME = "usual";
let made = 0;

function newClaim(): ClaimRequest {
  made += 1;
  const owner = { client: "test", host: "here", pid: 1 };
  return { name: NAME, id: `id ${made}`, units: 1, capacity: 1, leaseMs: 60_000, wait: true, owner };
}

const aheadOf = (answer: ClaimAnswer): string | undefined => (answer.kind === "queued" ? answer.ahead : undefined);

/** What is usual, asked of scripts from which the plain path was taken out: the fast paths answer all of it. */
export async function usual({ edit = (_, text) => text }: Pick<Build, "edit"> = {}): Promise<void> {
  const { client, close } = await virtualRedis();
  try {
    const fastOnly = (file: string, text: string): string =>
      edit(file, text).replace("-- include shared/name.lua", "error('no plain path')");
    const [fast, whole] = [await redisEngine(await client({ edit: fastOnly })), await redisEngine(await client())];
    const [first, second, third, released] = [newClaim(), newClaim(), newClaim(), newClaim()];
    await assert.rejects(fast.release(released), /no plain path/);
    for (const hasTombstones of [false, true]) {
      const claim = newClaim();
      assert.equal((await fast.claim(claim)).kind, "granted");
      assert.equal((await fast.renew([claim]))[0]?.kind, "granted");
      assert.equal((await fast.claim({ ...newClaim(), wait: false })).kind, "busy");
      if (hasTombstones) assert.equal((await fast.claim({ ...released, wait: false })).kind, "gone");
      assert.equal(await fast.release({ ...claim, tombstone: "never" }), "released");
      assert.equal(await whole.release(released), hasTombstones ? "revoked" : "gone");
      assert.equal((await fast.claim(released)).kind, "gone");
    }
    // What several names are asked in one turn goes out in one call.
    const several = ["one", "two", "three"].map((name) => ({ ...newClaim(), name, exact: name === "two" }));
    const kinds = await Promise.all(several.map(async (claim) => (await fast.claim(claim)).kind));
    assert.deepEqual(kinds, ["granted", "granted", "granted"]);
    assert.deepEqual(
      (await fast.renew(several)).map(({ kind }) => kind),
      ["granted", "granted", "granted"],
    );
    const left = await Promise.all(several.map((claim) => fast.release({ ...claim, tombstone: "never" })));
    assert.deepEqual(left, ["released", "released", "released"]);
    const readers = Array.from({ length: 2 }, () => ({ ...newClaim(), name: "readers", capacity: 5 }));
    assert.equal((await fast.claim(readers[0] ?? released)).kind, "granted", "a part of the units");
    assert.equal((await fast.claim(first)).kind, "granted");
    // What makes a queue of it, and only that, goes the plain path.
    assert.equal((await whole.claim(second)).kind, "queued");
    assert.equal((await fast.claim(third)).kind, "queued");
    assert.equal((await fast.claim(released)).kind, "gone");
    const [fourth, fifth] = [newClaim(), newClaim()];
    assert.deepEqual(await Promise.all([fourth, fifth].map(async (claim) => aheadOf(await fast.claim(claim)))), [
      third.id,
      fourth.id,
    ]);
    assert.equal(await fast.release({ ...first, tombstone: "never" }), "released");
    assert.equal((await whole.renew([second]))[0]?.kind, "granted");
    assert.equal(await whole.release({ ...second, tombstone: "never" }), "released");
    // As a client sends them that let the next one go on before the server knew.
    const leave = [
      { ...third, to: fourth.id },
      { ...fourth, to: fifth.id },
    ];
    const answers = await Promise.all(leave.map((claim) => fast.release({ ...claim, tombstone: "never" })));
    assert.deepEqual(answers, ["released", "released"]);
    assert.equal((await whole.renew([fifth]))[0]?.kind, "granted");
    // A release that leaves a tombstone goes the plain path, and whoever is handed the name by it the fast one again.
    const [sixth, seventh] = [newClaim(), newClaim()];
    for (const claim of [sixth, seventh]) assert.equal((await fast.claim(claim)).kind, "queued");
    assert.equal(await whole.release(fifth), "released");
    assert.equal(await fast.release({ ...sixth, tombstone: "never" }), "released");
  } finally {
    await close();
  }
}
