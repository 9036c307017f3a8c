import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { SystemClock } from "../../src/core/clock.js";
import type { ClaimRequest, Engine, EngineEvent } from "../../src/core/engine.js";
import { EngineRefusedError } from "../../src/core/errors.js";
import { ZooKeeperCells } from "../../src/engines/zookeeper/cells.js";
import type { ZooKeeperDriver } from "../../src/engines/zookeeper/driver.js";
import type { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { CODE, hasCode, ZooKeeperError } from "../../src/engines/zookeeper/errors.js";
import { zookeeperClient, zookeeperEngine } from "../../src/engines/zookeeper/index.js";
import { Nodes } from "../../src/engines/zookeeper/nodes.js";
import { Session } from "../../src/engines/zookeeper/session.js";
import { until } from "../servers/process.js";
import type { Proxy } from "../servers/proxy.js";
import { fourLetters, startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";
import { claimOf, engineOn, listening, proxyTo, rawOn, urlOf, wireOn } from "./zookeeper-rig.js";

/** What nobody asks about again: nodes, watches and turns that no later call of the core would put right. */

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper()), 60_000);
afterAll(() => server?.running.stop());

const url = (): string => urlOf(server.port);
const CREATE_AND_DELETE = 4 + 8;

async function nodesOf(raw: WireClient, { name, id }: ClaimRequest): Promise<readonly string[]> {
  const { names = [] } = (await raw.children(`/locks/${name}`)) ?? {};
  return names.filter((node) => node.includes(id) && !node.startsWith("~"));
}

/** The claim's node is created, and its client never hears of it. */
async function claimUnheard(engine: Engine, proxy: Proxy, raw: WireClient, claim: ClaimRequest): Promise<void> {
  await raw.create(`/locks/${claim.name}`, Buffer.alloc(0), "persistent").catch(() => {});
  proxy.deafen();
  const asking = engine.claim(claim);
  asking.catch(() => {});
  await until("it is there", async () => (await nodesOf(raw, claim)).length === 1);
  proxy.cut();
  await expect(asking).rejects.toThrow(/connection loss/);
}

function told(events: readonly EngineEvent[], kinds: readonly string[], { id }: ClaimRequest): () => boolean {
  return () => events.some((event) => "id" in event && event.id === id && kinds.includes(event.kind));
}

/** That it holds, or, where the session is too young to guarantee that, that it should ask. */
const ITS_TURN = ["granted", "wake"];

describe("nodes and watches", () => {
  test("pitfall 17: a claim whose answer and whose release were lost is taken out when the connection is back", async () => {
    const [proxy, raw] = [await proxyTo(server.port), await rawOn(server.port)];
    const far = await engineOn(urlOf(proxy.port), { sessionTimeoutMs: 20_000 });
    await (await engineOn(url())).claim(claimOf("folder"));
    const claim = claimOf("unheard");
    await claimUnheard(far, proxy, raw, claim);
    await expect(far.release(claim)).rejects.toThrow(/connection loss/);
    // Nobody asks again.
    proxy.heal();
    await until("it is gone", async () => (await nodesOf(raw, claim)).length === 0);
  });

  test("a hold that was taken out during a short break is told at once, and is watched no more", async () => {
    const [proxy, raw] = [await proxyTo(server.port), await rawOn(server.port)];
    const far = await engineOn(urlOf(proxy.port), { sessionTimeoutMs: 20_000 });
    const events = listening(far);
    const claim = claimOf("taken out");
    expect((await far.claim(claim)).kind).toBe("granted");
    const watched = async (): Promise<boolean> => (await fourLetters(server.port, "wchp")).includes(claim.id);
    await until("it is watched", watched);
    proxy.cut();
    const [node = ""] = await nodesOf(raw, claim);
    await raw.remove(`/locks/${claim.name}/${node}`);
    proxy.heal();
    await until("it is told", told(events, ["lost"], claim));
    await until("it is watched no more", async () => !(await watched()));
  });

  test("a folder that was made anew begins its numbers anew: what was known of the old one's nodes is forgotten", async () => {
    const raw = await rawOn(server.port);
    const [holder, other] = [await engineOn(url()), await engineOn(url())];
    const events = listening(holder);
    const claim = claimOf("made anew");
    expect((await holder.claim(claim)).kind).toBe("granted");
    expect((await other.renew([claim]))[0]?.kind).toBe("granted");
    const [node = ""] = await nodesOf(raw, claim);
    await raw.remove(`/locks/${claim.name}/${node}`);
    // Unless the server has done it, which removes empty folders twice a second.
    await raw.remove(`/locks/${claim.name}`).catch((error: unknown) => {
      if (!hasCode(error, CODE.noNode)) throw error;
    });
    await until("it is told", told(events, ["lost"], claim));
    const again = await holder.claim(claim);
    expect(await nodesOf(raw, claim)).toEqual([node]);
    expect((await other.renew([claim]))[0]).toMatchObject({
      kind: "granted",
      token: (again as { token: number }).token,
    });
  });

  test("a claim that may be created but not seen is refused, and leaves nothing behind", async () => {
    const blind = await rawOn(server.port, [{ perms: CREATE_AND_DELETE, scheme: "world", id: "anyone" }]);
    const near = await engineOn(url());
    await near.claim(claimOf("folder"));
    const claim = claimOf("blind", { leaseMs: 60_000 });
    await blind.create("/locks/blind", Buffer.alloc(0), "persistent");
    await expect(near.claim(claim)).rejects.toBeInstanceOf(EngineRefusedError);
    const node = `/locks/blind/_c_${claim.id}-lock-0000000000`;
    // Long before its lease would have ended by itself.
    await until("it is gone", async () => (await blind.exists(node)) === null, 5_000);
  });

  test("what no server would take is refused here: the connection, and all that lives by it, stay", async () => {
    const near = await engineOn(url());
    const hold = claimOf("beside");
    await near.claim(hold);
    const huge = near.claim(claimOf("huge", { data: "x".repeat(2 ** 20) }));
    await expect(huge).rejects.toBeInstanceOf(EngineRefusedError);
    expect((await near.renew([hold]))[0]).toMatchObject({ kind: "granted" });
  });
});

describe("a claim that is refused, and whose node could not be removed", () => {
  /** The first removal does not reach the server. */
  async function clumsy(): Promise<Engine> {
    let failed = false;
    const client = wireOn(server.port);
    const remove: ZooKeeperDriver["remove"] = async (path, version) => {
      if (failed) return client.remove(path, version);
      failed = true;
      throw new ZooKeeperError(CODE.connectionLoss, "removing");
    };
    const engine = await zookeeperEngine(
      new globalThis.Proxy<ZooKeeperDriver>(client, {
        get(_, key) {
          if (key === "remove") return remove;
          const value: unknown = Reflect.get(client, key);
          return typeof value === "function" ? value.bind(client) : value;
        },
      }),
      { base: "/locks" },
    );
    onTestFinished(async () => {
      await engine[Symbol.asyncDispose]();
      await client.close();
    });
    return engine;
  }

  test("told not to wait, it is busy when it is sent again", async () => {
    const [near, far] = [await engineOn(url()), await clumsy()];
    await near.claim(claimOf("still busy"));
    const claim = claimOf("still busy", { wait: false });
    await expect(far.claim(claim)).rejects.toThrow(/connection loss/);
    expect((await far.claim(claim)).kind).toBe("busy");
  });

  test("granted when it is sent again, it is a claim like any other", async () => {
    const [near, far, raw] = [await engineOn(url()), await clumsy(), await rawOn(server.port)];
    const [first, claim] = [claimOf("after all"), claimOf("after all", { capacity: 2 })];
    await near.claim(first);
    await expect(far.claim(claim)).rejects.toThrow(/connection loss/);
    await near.release({ ...first, tombstone: "never" });
    expect((await far.claim(claim)).kind).toBe("granted");
    const [node = ""] = await nodesOf(raw, claim);
    await raw.remove(`/locks/${claim.name}/${node}`);
    expect((await far.renew([claim]))[0]).toEqual({ kind: "gone" });
  });
});

describe("turns", () => {
  test("pitfall 56: granted when its lost answer is asked for again, it lets the next in the queue know", async () => {
    const [proxy, raw] = [await proxyTo(server.port), await rawOn(server.port)];
    const far = await engineOn(urlOf(proxy.port), { sessionTimeoutMs: 20_000 });
    const [near, other] = [await engineOn(url()), await engineOn(url())];
    const events = listening(other);
    const [one, two, three, four] = [0, 1, 2, 3].map(() => claimOf("late", { capacity: 2, leaseMs: 60_000 })) as [
      ClaimRequest,
      ClaimRequest,
      ClaimRequest,
      ClaimRequest,
    ];
    for (const claim of [one, two]) expect((await near.claim(claim)).kind).toBe("granted");
    await claimUnheard(far, proxy, raw, three);
    expect((await other.claim(four)).kind).toBe("queued");
    await near.release({ ...one, tombstone: "never" });
    proxy.heal();
    await until("it is granted", async () => (await far.claim(three).catch(() => null))?.kind === "granted");
    await near.release({ ...two, tombstone: "never" });
    await until("the next is told", told(events, ITS_TURN, four));
  });

  test("pitfall 56: whoever finds itself first in the queue with a heartbeat looks at all from then on", async () => {
    const raw = await rawOn(server.port);
    const [near, other] = [await engineOn(url()), await engineOn(url())];
    const events = listening(other);
    const [one, two, four] = [0, 1, 2].map(() => claimOf("silent", { capacity: 2 })) as [
      ClaimRequest,
      ClaimRequest,
      ClaimRequest,
    ];
    for (const claim of [one, two]) expect((await near.claim(claim)).kind).toBe("granted");
    // It holds as soon as there is room, and tells nobody.
    await raw.create("/locks/silent/_c_three-1.2-lock-", Buffer.alloc(0), "ephemeral-sequential");
    expect((await other.claim(four)).kind).toBe("queued");
    await near.release({ ...one, tombstone: "never" });
    expect((await other.renew([four]))[0]).toMatchObject({ kind: "queued" });
    await sleep(200);
    await near.release({ ...two, tombstone: "never" });
    await until("it is told", told(events, ITS_TURN, four));
  });
});

test("a client handed in stays open, and serves the next engine; the claims of an engine that was closed have ended", async () => {
  const raw = await rawOn(server.port);
  const client = zookeeperClient(url());
  onTestFinished(() => client.close());
  const closed = await zookeeperEngine(client, { base: "/locks" });
  const [held, released] = [claimOf("handed in"), claimOf("handed in", { units: 1 })];
  expect((await closed.claim(released)).kind).toBe("granted");
  await closed.release({ ...released, tombstone: "always" });
  expect((await closed.claim(held)).kind).toBe("granted");
  await closed[Symbol.asyncDispose]();
  expect((await raw.children("/locks/handed in"))?.names ?? [], "claims and tombstones are gone").toEqual([]);
  await using next = await zookeeperEngine(client, { base: "/locks" });
  const claim = claimOf("handed in", { wait: false });
  expect(await next.claim(claim)).toMatchObject({ kind: "granted" });
  expect((await next.renew([claim]))[0]).toMatchObject({ kind: "granted" });
});

test("a cell that was removed and made anew between the look and the write is another cell", async () => {
  const [raw, near] = [await rawOn(server.port), await engineOn(url())];
  const others = near.cells;
  if (others === null) throw new Error("no cells");
  const write = (operation: string, expected: number, value: string | null) =>
    others.write({ name: "anew", operation, expected, value });
  const { cell } = await write("one", 0, "first");
  let meanwhile = async (): Promise<void> => {
    meanwhile = async () => {};
    await write("two", cell.version, null);
    // Were the folder a container, the server would remove it now, and it would be made anew with its first version again.
    for (const probe of ["/locks/probe 1", "/locks/probe 2"]) {
      await raw.create(probe, Buffer.alloc(0), "container");
      await raw.create(`${probe}/child`, Buffer.alloc(0), "ephemeral");
      await raw.remove(`${probe}/child`);
      await until("empty containers are removed", async () => (await raw.exists(probe)) === null);
    }
    await write("three", 0, "second");
  };
  const slow = {
    get: async (path: string) => {
      const node = await raw.get(path);
      if (path.endsWith("/anew")) await meanwhile();
      return node;
    },
    exists: (path: string) => raw.exists(path),
    create: raw.create.bind(raw),
    remove: raw.remove.bind(raw),
    transact: raw.transact.bind(raw),
    stop: () => {},
    close: async () => {},
  } as unknown as ZooKeeperDriver;
  const nothing = (): void => {};
  const handlers = { ended: nothing, connected: nothing, warned: nothing };
  const session = new Session(slow, new SystemClock(), "/locks", handlers);
  onTestFinished(() => session.close(true));
  const cells = new ZooKeeperCells(new Nodes(session, "/locks"));
  const answer = await cells.write({ name: "anew", operation: "four", expected: cell.version, value: "third" });
  expect(answer).toMatchObject({ kind: "conflict", cell: { value: "second" } });
  await write("five", answer.cell.version, null);
});
