import { afterAll, expect, test } from "vitest";
import { allBlocks } from "../docs/blocks.js";
import { excuseOf, needsServer } from "../docs/excused.js";
import { runBlock } from "../docs/run.js";
import { startEtcd } from "../servers/etcd.js";
import { query, startMariadb } from "../servers/mariadb.js";
import { startPostgres } from "../servers/postgres.js";
import { startRedis } from "../servers/redis.js";
import { startZooKeeper } from "../servers/zookeeper.js";

type Started = { readonly url: string; stop(): Promise<void> };

/** By the scheme that a block writes, the server that it gets. */
const START: Record<string, () => Promise<Started>> = {
  async redis() {
    const { url, running } = await startRedis();
    return { url, stop: () => running.stop() };
  },
  async redlock() {
    const servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()));
    const hosts = servers.map(({ port }) => `127.0.0.1:${port}`).join(",");
    return {
      url: `redlock://${hosts}`,
      stop: async () => void (await Promise.all(servers.map((server) => server.running.stop()))),
    };
  },
  async postgres() {
    const { url, running } = await startPostgres();
    return { url, stop: () => running.stop() };
  },
  async mysql() {
    const { url, running } = await startMariadb();
    await query(url, "CREATE DATABASE shop");
    return { url: `${url}/shop`, stop: () => running.stop() };
  },
  async etcd() {
    const cluster = await startEtcd();
    return { url: cluster.url, stop: () => cluster.stop() };
  },
  async zookeeper() {
    const { port, running } = await startZooKeeper({ tickMs: 1000 });
    return { url: `zookeeper://127.0.0.1:${port}/locks`, stop: () => running.stop() };
  },
};

const URLS = /\b([a-z+]+):\/\/[^\s"'`)]+/g;

const started = new Map<string, Promise<Started>>();
afterAll(async () => {
  await Promise.all([...started.values()].map(async (server) => (await server).stop()));
});

function serverFor(scheme: string): Promise<Started> {
  const known = started.get(scheme) ?? START[scheme]?.();
  if (known === undefined) throw new Error(`no server for ${scheme}://`);
  started.set(scheme, known);
  return known;
}

/** The same program with the addresses of servers that are there. */
async function atHome(code: string): Promise<string> {
  const schemes = [...new Set([...code.matchAll(URLS)].map(([, scheme = ""]) => scheme))];
  const urls = await Promise.all(schemes.map(async (scheme) => [scheme, (await serverFor(scheme)).url] as const));
  const byScheme = new Map(urls);
  return code.replace(URLS, (_, scheme: string) => byScheme.get(scheme) ?? "");
}

test.each(allBlocks().filter((block) => needsServer(block) && excuseOf(block) === undefined))(
  "the block at $place runs on a real server",
  { timeout: 480_000 },
  async (block) => {
    const code = await atHome(block.code);
    expect(code).toContain("127.0.0.1");
    await runBlock({ ...block, code });
  },
);
