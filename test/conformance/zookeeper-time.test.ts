import { afterAll, beforeAll, test } from "vitest";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";
import { lockstep } from "../virtual/lockstep/lockstep.js";
import { SESSION_MS, zookeeperWorld } from "../virtual/lockstep/zookeeper.js";

const START_MS = 120_000;
/** On a busy machine a second's work takes many. */
const RUN_MS = 180_000;
const SEEDS = Number(process.env["HOLDFAST_SEEDS"] ?? 6);
const FIRST = Number(process.env["HOLDFAST_FIRST_SEED"] ?? 1);

let server: ZooKeeperServer | undefined;
beforeAll(async () => {
  server = await startZooKeeper({ lines: [`maxSessionTimeout=${SESSION_MS}`] });
}, START_MS);
afterAll(() => server?.running.stop(), START_MS);

for (let seed = FIRST; seed < FIRST + SEEDS; seed += 1) {
  const bad = seed % 3 === 0 ? 0.08 : 0;
  const names = seed % 2 === 0 ? "kazoo" : "curator";
  const title = `seed ${seed}, ${bad > 0 ? "unreliable connections" : "reliable connections"}: all is answered and told as by the reference while time passes`;
  test.concurrent(
    title,
    async () => {
      if (server === undefined) throw new Error("no server");
      const chance = new SeededChance(seed);
      await lockstep(zookeeperWorld(server.port, chance, names), chance, { commands: 80, bad });
    },
    RUN_MS,
  );
}
