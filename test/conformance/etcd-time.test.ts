import { afterAll, beforeAll, test } from "vitest";
import { type EtcdDriver, etcdClient } from "../../src/engines/etcd/index.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
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
