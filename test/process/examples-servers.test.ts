import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, type Locks } from "../../src/index.js";
import { startEtcd } from "../servers/etcd.js";
import { startMariadb } from "../servers/mariadb.js";
import { startRedis } from "../servers/redis.js";
import { SHARED_STORES, type Store } from "../servers/stores.js";
import { startZooKeeper } from "../servers/zookeeper.js";
import { type Ended, expectVerdict, FLEETS, run } from "./examples.js";

const STORES = {
  redis: () => SHARED_STORES.redis(),
  postgres: () => SHARED_STORES.postgres(),
  async mysql(): Promise<Store> {
    const { url, running } = await startMariadb();
    return { url, stop: () => running.stop() };
  },
  async etcd(): Promise<Store> {
    const cluster = await startEtcd();
    return { url: `etcd://127.0.0.1:${cluster.members[0]?.port}`, stop: () => cluster.stop() };
  },
  async zookeeper(): Promise<Store> {
    const { port, running } = await startZooKeeper();
    return { url: `zookeeper://127.0.0.1:${port}`, stop: () => running.stop() };
  },
  async quorum(): Promise<Store> {
    const servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
    const url = `redlock://${servers.map(({ port }) => `127.0.0.1:${port}`).join(",")}`;
    return { url, stop: () => Promise.all(servers.map(({ running }) => running.stop())) };
  },
};
type StoreName = keyof typeof STORES;
const STORE_NAMES = Object.keys(STORES) as StoreName[];

/** On which servers an example runs, where it is not each of them. */
const SERVERS: Record<string, readonly (readonly StoreName[])[]> = {
  // A lock in each of two stores, which are known by a cell: a quorum has none.
  "two-services": [
    ["redis", "postgres"],
    ["mysql", "zookeeper"],
    ["etcd", "redis"],
  ],
  // Its ticks are kept in a cell.
  "cron-once": STORE_NAMES.filter((name) => name !== "quorum").map((name) => [name]),
};

describe("the examples, on servers", { timeout: 600_000 }, () => {
  const stores = new Map<StoreName, Store>();
  let places: Locks;
  /** A few at a time: each is a fleet of processes with short leases. */
  const runInTurn = (...words: string[]): Promise<Ended> => places.semaphore("places", 6).using(() => run(...words));
  const urls = (names: readonly StoreName[]): string[] =>
    names.flatMap((name) => ["--url", stores.get(name)?.url ?? `${name} did not start`]);
  const table = (examples: readonly string[]): [example: string, where: string, names: readonly StoreName[]][] =>
    examples.flatMap((example) =>
      (SERVERS[example] ?? STORE_NAMES.map((name) => [name])).map((names): [string, string, readonly StoreName[]] => [
        example,
        names.join(" and "),
        names,
      ]),
    );

  beforeAll(async () => {
    places = await connect("memory:examples");
    await Promise.all(STORE_NAMES.map(async (name) => stores.set(name, await STORES[name]())));
  });
  afterAll(async () => {
    await Promise.all([...stores.values()].map(({ stop }) => stop()));
    await places.close();
  });

  test.concurrent.each(table(FLEETS.filter((name) => name !== "paused-writer")))("%s on %s", async (name, _, names) => {
    const ended = await runInTurn(name, ...urls(names));
    expectVerdict(ended, true);
    expect(ended.stdout).toContain("killed (SIGKILL)");
    if (name === "shop-http") {
      expect(ended.stdout).toMatch(/^without +\d+ +\d+ +[1-9]\d* /m);
      expect(ended.stdout).toMatch(/^with the lock +100 +0 +0 /m);
    }
  });

  test.concurrent.each(table(["drain"]))("%s on %s", async (name, _, names) => {
    const ended = await runInTurn(name, ...urls(names));
    expectVerdict(ended, true);
    expect(ended.stdout.match(/told to end \(SIGTERM\), and ended with code 0/g)).toHaveLength(2);
  });

  // One after the other: both use the same lock and the same document.
  test.concurrent.each(STORE_NAMES)(
    "paused-writer on %s, and the late write is accepted without the fence",
    async (name) => {
      const refused = await runInTurn("paused-writer", ...urls([name]));
      expectVerdict(refused, true);
      expect(refused.stdout).toMatch(/ann +was refused: .*\n(?:.*\n)*.*the document says "written by cy"/);
      const accepted = await runInTurn("paused-writer", "--no-fence", ...urls([name]));
      expectVerdict(accepted, false);
      expect(accepted.stdout).toMatch(/ann +wrote\n(?:.*\n)*.*the document says "written by ann"/);
    },
  );

  // With the shop in the database too: flash-sale.test.ts.
  test.concurrent.each(["redis", "etcd", "zookeeper", "quorum"] as const)("flash-sale on %s", async (name) => {
    const { code, stdout, stderr } = await runInTurn("flash-sale", "--variant", "mutex", ...urls([name]));
    expect({ code, stderr, stdout }).toMatchObject({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^mutex +100 +0 +0 /m);
  });
});
