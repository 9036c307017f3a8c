import assert from "node:assert/strict";
import { afterAll, beforeAll, test } from "vitest";
import { type EtcdDriver, etcdClient } from "../../src/engines/etcd/index.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { claimOf } from "../faults/rig.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { etcdWorld } from "../virtual/lockstep/etcd.js";
import { lockstep } from "../virtual/lockstep/lockstep.js";

const START_MS = 60_000;
/** On a busy machine a second's work takes many. */
const RUN_MS = 180_000;
const SEEDS = Number(process.env["HOLDFAST_SEEDS"] ?? 6);
const FIRST = Number(process.env["HOLDFAST_FIRST_SEED"] ?? 1);

let cluster: EtcdCluster | undefined;
let client: EtcdDriver | undefined;
beforeAll(async () => {
  cluster = await startEtcd();
  client = await etcdClient(cluster.url);
}, START_MS);
afterAll(async () => {
  client?.close();
  await cluster?.stop();
}, START_MS);

for (let seed = FIRST; seed < FIRST + SEEDS; seed += 1) {
  const bad = seed % 3 === 0 ? 0.08 : 0;
  test.concurrent(
    `seed ${seed}, ${bad > 0 ? "unreliable connections" : "reliable connections"}: all is answered and told as by the reference while time passes`,
    async () => {
      if (client === undefined) throw new Error("no server");
      const chance = new SeededChance(seed);
      await lockstep(etcdWorld(client, chance), chance, { commands: 80, bad });
    },
    RUN_MS,
  );
}

test.concurrent(
  "a claim that another client sends again ends no earlier: who holds it counts on that",
  async () => {
    if (client === undefined) throw new Error("no server");
    const world = etcdWorld(client, new SeededChance(1));
    const [one, two] = [await world.open(), await world.open()];
    const claim = claimOf("n", { leaseMs: 21_000, chosen: true });
    await one.claim(claim);
    // Of the 20.5 s that are left now etcd tells the whole seconds.
    await world.time.advance(500);
    assert.equal((await two.claim(claim)).kind, "granted");
    const [stored] = (await world.stored("n")).claims;
    assert.ok((stored?.endsAt ?? 0) >= 21_000, `it ends at ${stored?.endsAt}`);
    for (const engine of [one, two]) await engine[Symbol.asyncDispose]();
  },
  RUN_MS,
);
