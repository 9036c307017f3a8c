import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { ClaimAnswer, ClaimRequest, Engine } from "../../src/core/engine.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import { redisEngine } from "../../src/engines/redis/index.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { until } from "../servers/process.js";
import { type ClusterSet, type RedisServer, startCluster, startRedis } from "../servers/redis.js";
import { claimOf, closing, engineOn, states } from "./redis-rig.js";

/** Claims that a program makes in one turn of the event loop are decided in the order in which it made them. */

let server: RedisServer;
let cluster: ClusterSet;
beforeAll(async () => void ([server, cluster] = await Promise.all([startRedis(), startCluster()])), 60_000);
afterAll(() => Promise.all([server?.running.stop(), cluster?.stop()]));

const reader = (name: string, over: Partial<ClaimRequest> = {}): ClaimRequest =>
  claimOf(name, { capacity: READERS_MAX, ...over });
const writer = (name: string, over: Partial<ClaimRequest> = {}): ClaimRequest =>
  reader(name, { units: READERS_MAX, ...over });

const askAll = (engine: Engine, claims: readonly ClaimRequest[]): Promise<ClaimAnswer[]> =>
  Promise.all(claims.map((claim) => engine.claim(claim)));

const places: readonly (readonly [string, () => Promise<Engine>])[] = [
  ["one server", () => engineOn(server.url)],
  ["a Cluster, ioredis", () => engineOn(cluster.url)],
  [
    "a Cluster, ioredis handed in",
    async () => {
      const client = new Cluster(cluster.servers.map(({ port }) => ({ host: "127.0.0.1", port })));
      onTestFinished(() => client.disconnect());
      return closing(await redisEngine(client));
    },
  ],
  [
    "a Cluster, node-redis",
    async () => {
      const client = createCluster({ rootNodes: cluster.servers.map(({ url }) => ({ url })) });
      client.on("error", () => {});
      await client.connect();
      onTestFinished(() => client.destroy());
      return closing(await redisEngine(client));
    },
  ],
];

describe.each(places)("%s", (_place, open) => {
  test("a claim that fits, asked before one that does not, is granted and not behind it", async () => {
    const engine = await open();
    const one = (units = 1): ClaimRequest => claimOf("fits", { capacity: 4, units });
    const before = [one(), one()];
    for (const claim of before) await engine.claim(claim);
    const [fits, large] = [one(), one(3)];
    expect((await askAll(engine, [fits, large])).map(({ kind }) => kind)).toEqual(["granted", "queued"]);
    for (const claim of [...before, fits, large]) expect(await engine.release(claim)).toBe("released");
  });

  test("a reader asked before a writer reads beside the others; told not to wait, it is not busy", async () => {
    const engine = await open();
    for (const wait of [true, false]) {
      const before = [reader("rw"), reader("rw")];
      for (const claim of before) await engine.claim(claim);
      const [first, then, last] = [reader("rw", { wait }), writer("rw"), reader("rw", { wait })];
      const answers = await askAll(engine, [first, then, last]);
      expect(answers.map(({ kind }) => kind)).toEqual(["granted", "queued", wait ? "queued" : "busy"]);
      for (const claim of [...before, first, then, last]) await engine.release(claim);
    }
  });

  test("claims with different owners and data are decided in the order asked, too", async () => {
    const engine = await open();
    const owners = ["x", "y"].map((label) => ({ client: "c", host: "h", pid: 1, label }));
    const asked = Array.from({ length: 6 }, (_, n) =>
      claimOf("owners", { owner: owners[n % 2] as ClaimRequest["owner"], ...(n === 4 ? { data: "some" } : {}) }),
    );
    const answers = await askAll(engine, asked);
    expect(answers.map(({ kind }) => kind)).toEqual(["granted", ...Array.from({ length: 5 }, () => "queued")]);
    const [state] = await states(engine, { name: "owners" });
    expect(state?.waiters.map(({ id }) => id)).toEqual(asked.slice(1).map(({ id }) => id));
    for (const claim of asked) await engine.release(claim);
  });
});

test("who withdraws before a release in the same turn is not granted by it", async () => {
  const engine = await engineOn(server.url);
  const granted: string[] = [];
  engine.listen((event) => void (event.kind === "granted" && granted.push(event.id)));
  const claims = Array.from({ length: 3 }, () => claimOf("withdrawn"));
  const [holder, leaving, next] = claims as [ClaimRequest, ClaimRequest, ClaimRequest];
  for (const claim of claims) await engine.claim(claim);
  await Promise.all([engine.release(leaving), engine.release({ ...holder, tombstone: "never" })]);
  await until("a push", () => granted.length > 0);
  expect(granted).toEqual([next.id]);
  await engine.release(next);
});

test("whatever is asked in one turn, of one name or of several, is answered as the memory engine answers it", async () => {
  const engine = await engineOn(server.url);
  for (let seed = 1; seed <= 150; seed += 1) {
    const chance = new SeededChance(seed);
    const below = (limit: number): number => Math.floor(chance.fraction() * limit);
    const reference = closing(memoryEngine());
    const names = Array.from({ length: 1 + below(3) }, (_, n) => `tick ${seed} ${n}`);
    const capacity = [1, 2, 3, READERS_MAX][below(4)] ?? 1;
    const claim = (): ClaimRequest =>
      claimOf(names[below(names.length)] ?? "", {
        capacity,
        units: below(3) === 0 ? capacity : 1,
        wait: below(3) > 0,
        ...(below(4) === 0 ? { data: `${below(2)}` } : {}),
      });
    const held: ClaimRequest[] = [];
    const gone: ClaimRequest[] = [];
    for (let turn = 0; turn < 4; turn += 1) {
      const asked = Array.from({ length: 1 + below(8) }, claim);
      // A late copy of what was released, among the others.
      if (gone.length > 0) asked.splice(below(asked.length), 0, gone[below(gone.length)] as ClaimRequest);
      // Sent again, in the same turn: it takes once.
      if (below(3) === 0 && asked[0] !== undefined) asked.push(asked[0]);
      // Releases between them, also of what was asked in this turn.
      const leaving = asked.map((_, n) =>
        below(4) === 0 ? [...held, ...asked.slice(0, n)][below(held.length + n)] : null,
      );
      const ask = (of: Engine): Promise<string> => {
        const answers = asked.flatMap((one, n) => {
          const out = leaving[n];
          const left = out ? [of.release({ ...out, tombstone: held.includes(out) ? "never" : "always" })] : [];
          return [...left, of.claim(one).then(({ kind }) => kind)];
        });
        return Promise.all(answers).then((words) => words.join(" "));
      };
      const [actual, expected] = await Promise.all([ask(engine), ask(reference)]);
      expect(actual, `seed ${seed}, turn ${turn}`).toBe(expected);
      held.push(...asked);
      const released = held.splice(0, below(held.length));
      gone.push(...released);
      const release = (of: Engine) => Promise.all(released.map((one) => of.release(one)));
      expect(await release(engine), `seed ${seed}, turn ${turn}`).toEqual(await release(reference));
      for (const name of names) {
        const [mine] = await states(engine, { name });
        const [theirs] = await states(reference, { name });
        const ids = (state = mine): readonly (readonly string[])[] =>
          [state?.holders ?? [], state?.waiters ?? []].map((claims) => claims.map(({ id }) => id));
        expect(ids(mine), `seed ${seed}, turn ${turn}, ${name}`).toEqual(ids(theirs));
      }
    }
    for (const one of held) await engine.release(one);
  }
}, 60_000);
