import { describe, expect, test } from "vitest";
import type { ClaimRequest } from "../../src/core/engine.js";
import { EngineRefusedError, EngineUnavailableError, InvalidOptionError } from "../../src/core/errors.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { LAYOUT_VERSIONS } from "../../src/engine-kit/layout-version.js";
import { ZooKeeperCells } from "../../src/engines/zookeeper/cells.js";
import type { SessionEvent, Watcher, ZooKeeperDriver } from "../../src/engines/zookeeper/driver.js";
import { CODE, ZooKeeperError } from "../../src/engines/zookeeper/errors.js";
import { PredecessorWatch } from "../../src/engines/zookeeper/events.js";
import { FollowedQueues } from "../../src/engines/zookeeper/followed.js";
import { zookeeperEngine } from "../../src/engines/zookeeper/index.js";
import { stateOf } from "../../src/engines/zookeeper/inspect.js";
import { agree } from "../../src/engines/zookeeper/layout-version.js";
import type { NodeClaim, NodeClaims } from "../../src/engines/zookeeper/node-claim.js";
import { entryOf, escaped, folderOf, isOrdered, keyOf, sequenceText } from "../../src/engines/zookeeper/node-names.js";
import { Nodes } from "../../src/engines/zookeeper/nodes.js";
import { checkOptions, checkUrlOptions } from "../../src/engines/zookeeper/options.js";
import { confirm } from "../../src/engines/zookeeper/renew.js";
import { Session } from "../../src/engines/zookeeper/session.js";
import { NodeWatcher } from "../../src/engines/zookeeper/watcher.js";
import { capacityChange, setCapacity } from "../../src/queue/capacity.js";
import { Queue, type QueueEntry } from "../../src/queue/queue.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";

/** Bounds, and what is made of answers that a server seldom gives. */

const nothing = (): void => {};
const failing = (code: number): ZooKeeperError => new ZooKeeperError(code, "asking");
const stat = (czxid: number, version = 0) => ({ czxid, mzxid: czxid, version, ephemeralOwner: "2a" });
const owner = { client: "c", host: "h", pid: 1 };
const claimOf = (name: string, id: string): ClaimRequest => ({
  ...{ name, id, units: 1, capacity: 1, leaseMs: 1_000, wait: true, owner },
});

/** A client that answers what a test says, and nothing else. */
function nodesOn(client: Partial<ZooKeeperDriver>) {
  const clock = new FakeClock();
  const all = { sessionTimeoutMs: 20_000, stop: nothing, close: async () => {}, unwatch: nothing, ...client };
  const driver = all as unknown as ZooKeeperDriver;
  const session = new Session(driver, clock, "/base", { ended: nothing, connected: nothing, warned: nothing });
  return { clock, session, nodes: new Nodes(session, "/base") };
}

/** The first so many calls fail, and those after them are answered. */
function refusing<T>(failures: number, code: number, answer: T) {
  const calls: string[] = [];
  return {
    calls,
    ask: async (path: string): Promise<T> => {
      calls.push(path);
      if (calls.length <= failures) throw failing(code);
      return answer;
    },
  };
}

describe("a folder that the server removes again and again", () => {
  const clientOf = (failures: number) => {
    const claims = refusing(failures, CODE.noNode, { path: "/base/n/p-0000000001", czxid: 3 });
    const made: string[] = [];
    const { nodes } = nodesOn({
      create: async (path, _data, mode) => {
        if (mode !== "container") return claims.ask(path);
        made.push(path);
        return { path, czxid: 1 };
      },
      children: async () => null,
      exists: async () => null,
      remove: async () => {},
    });
    return { nodes, claims, made };
  };

  test.each(["a claim", "a tombstone"])("is made anew for %s, four times", async (what) => {
    for (const failures of [4, 5]) {
      const { nodes, claims, made } = clientOf(failures);
      const asked =
        what === "a claim" ? nodes.append({ name: "n", id: "i" }, "p-", Buffer.alloc(0)) : nodes.bury("n", "i");
      if (failures === 5) await expect(asked).rejects.toMatchObject({ code: CODE.noNode });
      else expect(await asked).toBeTruthy();
      expect([claims.calls.length, made.length]).toEqual([5, 4]);
    }
  });

  test("is not made for what fails otherwise", async () => {
    for (const ask of [
      (nodes: Nodes) => nodes.append({ name: "n", id: "i" }, "p-", Buffer.alloc(0)),
      (nodes: Nodes) => nodes.bury("n", "i"),
    ]) {
      const made: string[] = [];
      const { nodes } = nodesOn({
        create: async (path, _data, mode) => {
          if (mode === "container") made.push(path);
          throw failing(CODE.noAuth);
        },
        children: async () => null,
        exists: async () => null,
      });
      await expect(ask(nodes)).rejects.toMatchObject({ code: CODE.noAuth });
      expect(made).toEqual([]);
    }
  });

  test("a tombstone that is there already was another's", async () => {
    const { nodes } = nodesOn({ create: () => Promise.reject(failing(CODE.nodeExists)) });
    expect(await nodes.bury("n", "i")).toBe(false);
  });
});

describe("folders", () => {
  const making = (outcomes: (path: string) => number | undefined) => {
    const made: string[] = [];
    const { nodes } = nodesOn({
      create: async (path, data, mode) => {
        expect(data).toHaveLength(0);
        const code = outcomes(path);
        made.push(`${path} ${mode}`);
        if (code !== undefined) throw failing(code);
        return { path, czxid: 1 };
      },
    });
    return { made, nodes };
  };

  test("are made down to the last one, where that cannot be made by itself; the last may be one that stays", async () => {
    const plain = making(() => undefined);
    await plain.nodes.makeFolder("/base/a/b");
    expect(plain.made).toEqual(["/base/a/b container"]);
    let tries = 0;
    const deep = making((path) => (path === "/base/a/b" && (tries += 1) === 1 ? CODE.noNode : undefined));
    await deep.nodes.makeFolder("/base/a/b", "persistent");
    expect(deep.made).toEqual([
      ...["/base/a/b persistent", "/base container", "/base/a container", "/base/a/b persistent"],
    ]);
  });

  test("that are there already are as good as made; what may not be made is an error", async () => {
    const there = making(() => CODE.nodeExists);
    await there.nodes.makeFolder("/base/a");
    expect(there.made).toHaveLength(1);
    await expect(making(() => CODE.noAuth).nodes.makeFolder("/base/a")).rejects.toMatchObject({ code: CODE.noAuth });
    let tries = 0;
    const above = making((path) => {
      if (path === "/base") return CODE.noAuth;
      tries += 1;
      return tries === 1 ? CODE.noNode : CODE.nodeExists;
    });
    await expect(above.nodes.makeFolder("/base/a")).rejects.toMatchObject({ code: CODE.noAuth });
  });
});

describe("the layout version", () => {
  const { lowest, highest } = LAYOUT_VERSIONS.zookeeper;
  const ours = `${lowest}-${highest}`;

  test("is written once more while others are faster, or remove what it stands in: five times", async () => {
    for (const code of [CODE.nodeExists, CODE.noNode, CODE.badVersion]) {
      for (const failures of [4, 5]) {
        const writes = refusing(failures, code, { path: "", czxid: 1 });
        let made = 0;
        const { nodes } = nodesOn({
          get: async () => null,
          create: async (path, data, mode) => {
            if (mode === "container") {
              made += 1;
              return { path, czxid: 1 };
            }
            expect([path, data.toString(), mode]).toEqual(["/base/~layout-version", ours, "persistent"]);
            return writes.ask(path);
          },
        });
        if (failures === 5) await expect(agree(nodes)).rejects.toMatchObject({ code });
        else expect(await agree(nodes)).toBeNull();
        expect([writes.calls.length, made]).toEqual([5, code === CODE.noNode ? 4 : 0]);
      }
    }
  });

  test("that may not be written is an error at once, and that of another program is not written over", async () => {
    const writes = refusing(1, CODE.noAuth, { path: "", czxid: 1 });
    const { nodes } = nodesOn({ get: async () => null, create: (path) => writes.ask(path) });
    await expect(agree(nodes)).rejects.toMatchObject({ code: CODE.noAuth });
    expect(writes.calls).toHaveLength(1);
    const theirs = nodesOn({ get: async () => ({ data: Buffer.from("99-99"), stat: stat(1) }) });
    expect(await agree(theirs.nodes)).toBeInstanceOf(EngineRefusedError);
  });
});

describe("a cell", () => {
  const client = (transact: (path: string) => Promise<void>, made: string[]): Partial<ZooKeeperDriver> => ({
    get: async () => null,
    exists: async (path) => (path.includes("~operations") ? stat(9) : null),
    create: async (path, _data, mode) => {
      made.push(`${path} ${mode}`);
      return { path, czxid: 1 };
    },
    transact: (operations) => transact(operations[0]?.path ?? ""),
  });

  test("is written once more while others are faster, or its folders are missing: twenty times", async () => {
    for (const code of [CODE.badVersion, CODE.nodeExists, CODE.noNode]) {
      for (const failures of [19, 20]) {
        const writes = refusing(failures, code, undefined);
        const made: string[] = [];
        const { nodes } = nodesOn(client(writes.ask, made));
        const written = new ZooKeeperCells(nodes).write({ name: "c", operation: "o", expected: 0, value: "v" });
        if (failures === 20) await expect(written).rejects.toMatchObject({ code });
        else expect(await written).toEqual({ kind: "written", cell: { version: 9, value: "v" } });
        expect(writes.calls).toHaveLength(20);
        expect(made.slice(0, 2)).toEqual(
          code === CODE.noNode ? ["/base/~cells persistent", "/base/~operations container"] : [],
        );
        expect(made).toHaveLength(code === CODE.noNode ? 38 : 0);
      }
    }
  });

  test("that may not be written is refused at once", async () => {
    const writes = refusing(1, CODE.noAuth, undefined);
    const { nodes } = nodesOn(client(writes.ask, []));
    const cells = new ZooKeeperCells(nodes);
    await expect(cells.write({ name: "c", operation: "o", expected: 0, value: "v" })).rejects.toBeInstanceOf(
      EngineRefusedError,
    );
    expect(writes.calls).toHaveLength(1);
  });

  test("that cannot be watched is asked for every half second until it can, and then when it changes", async () => {
    const asked: string[] = [];
    let [isDown, version, watcher] = [true, 4, undefined as Watcher | undefined];
    const unwatched: string[] = [];
    const { clock, nodes, session } = nodesOn({
      exists: async (path, told) => {
        asked.push(`${path} at ${clock.now()}`);
        if (isDown) throw failing(CODE.connectionLoss);
        watcher = told;
        return stat(version);
      },
      get: async () => ({ data: Buffer.from("v"), stat: stat(version) }),
      unwatch: (path) => void unwatched.push(path),
    });
    const cells = new ZooKeeperCells(nodes);
    const heard: unknown[] = [];
    const stop = cells.watch("c", (cell) => void heard.push(cell));
    await clock.advance(1_499);
    expect(asked).toEqual([0, 500, 1_000].map((at) => `/base/~cells/c at ${at}`));
    isDown = false;
    await clock.advance(1);
    expect([asked.length, heard], "nothing has changed").toEqual([4, []]);
    await clock.advance(5_000);
    version = 5;
    watcher?.();
    await clock.advance(0);
    expect([asked.length, heard]).toEqual([5, [{ version: 5, value: "v" }]]);
    cells.readAgain();
    await clock.advance(0);
    expect(asked).toHaveLength(6);
    stop();
    expect(unwatched).toEqual(["/base/~cells/c"]);
    watcher?.();
    cells.readAgain();
    await clock.advance(5_000);
    expect(asked, "nobody wants to know any more").toHaveLength(6);
    cells.watch("d", nothing);
    cells.close();
    expect(unwatched).toEqual(["/base/~cells/c", "/base/~cells/d"]);
    await session.close(true);
  });

  test("that is watched anew when it was read for the watch before is told by its own reading", async () => {
    const answers: (() => void)[] = [];
    const { nodes } = nodesOn({
      exists: async () => stat(4),
      get: () =>
        new Promise((resolve) => {
          const read = { data: Buffer.from("v"), stat: stat(4 + answers.length) };
          answers.push(() => resolve(read));
        }),
    });
    const cells = new ZooKeeperCells(nodes);
    const heard: unknown[] = [];
    cells.watch("c", nothing)();
    cells.watch("c", (cell) => void heard.push(cell));
    await settle();
    // The newer one is the first that this watch knows of.
    answers[0]?.();
    answers[1]?.();
    await settle();
    expect(heard).toEqual([]);
  });
});

describe("what is known of nodes", () => {
  const NAME = "n";
  const key = (n: number): string => `_c_id${n}-lock-${String(n).padStart(10, "0")}`;
  const entry = (n: number): QueueEntry => entryOf(key(n)) as QueueEntry;

  /** `there`: what a listing shows; `made`: by which transaction the folder was. */
  function known() {
    const state = { there: [] as string[] | null, made: 1 };
    const gets: string[] = [];
    const { nodes } = nodesOn({
      exists: async () => stat(1),
      children: async () => (state.there === null ? null : { names: state.there, stat: stat(state.made) }),
      get: async (path) => {
        gets.push(path);
        return { data: Buffer.alloc(0), stat: stat(7) };
      },
    });
    const isKnown = async (name: string, n: number): Promise<boolean> => {
      gets.length = 0;
      await nodes.know(name, entry(n));
      return gets.length === 0;
    };
    return { state, nodes, gets, isKnown };
  }

  test("is kept for a while after they left: for two of each that is there, and sixteen", async () => {
    for (const [count, keeps] of [
      [18, true],
      [19, false],
    ] as const) {
      const { state, nodes, isKnown } = known();
      for (let n = 0; n < count; n += 1) nodes.knowOwn(claimOf(NAME, `id${n}`), key(n), n);
      state.there = [key(3)];
      await nodes.queue(NAME);
      expect([await isKnown(NAME, 3), await isKnown(NAME, 0)]).toEqual([true, keeps]);
    }
  });

  test("is forgotten with its folder: one that is gone, and one that was made anew", async () => {
    for (const change of [{ there: null }, { there: [key(0)], made: 2 }]) {
      const { state, nodes, isKnown } = known();
      state.there = [key(0)];
      nodes.knowOwn(claimOf(NAME, "id0"), key(0), 5);
      await nodes.queue(NAME);
      expect(await isKnown(NAME, 0)).toBe(true);
      Object.assign(state, change);
      await nodes.queue(NAME);
      expect(await isKnown(NAME, 0), JSON.stringify(change)).toBe(false);
    }
  });

  test("is kept of a thousand names, those that were used last", async () => {
    const { nodes, isKnown } = known();
    for (let n = 0; n < 1_000; n += 1) nodes.knowOwn(claimOf(`n${n}`, "id0"), key(0), 1);
    expect(await isKnown("n0", 0)).toBe(true);
    nodes.knowOwn(claimOf("n0", "id1"), key(1), 2);
    nodes.knowOwn(claimOf("one more", "id0"), key(0), 1);
    expect([await isKnown("n0", 0), await isKnown("n2", 0), await isKnown("one more", 0)]).toEqual([true, true, true]);
    expect(await isKnown("n1", 0), "the oldest went for it").toBe(false);
  });

  test("is read once for all who ask meanwhile, and again by who asks later when it had left", async () => {
    const asked: string[] = [];
    const { nodes } = nodesOn({
      get: async (path) => {
        asked.push(path);
        return null;
      },
    });
    expect(await Promise.all([nodes.know(NAME, entry(0)), nodes.know(NAME, entry(0))])).toEqual([null, null]);
    expect(await nodes.know(NAME, entry(0))).toBeNull();
    expect(asked).toEqual([`/base/n/${key(0)}`, `/base/n/${key(0)}`]);
  });

  test("is what we write, or what another library does: a short text, and nothing that is not understood", async () => {
    const whose = { client: "session 0x2a", host: "unknown", pid: 0 };
    for (const [data, expected] of [
      ["", {}],
      ["x".repeat(1_024), { data: "x".repeat(1_024) }],
      ["x".repeat(1_025), {}],
      ['"text"', { data: '"text"' }],
      ["null", { data: "null" }],
      ["7", { data: "7" }],
      [
        JSON.stringify({ owner, leaseMs: 5, data: "d", exact: true, token: 3 }),
        { owner, leaseMs: 5, data: "d", exact: true, token: 3 },
      ],
      [JSON.stringify({ owner: 1, leaseMs: "5", data: 1, exact: "yes", token: 1.5 }), {}],
      [JSON.stringify({ exact: false }), {}],
    ] as const) {
      const { nodes } = nodesOn({ get: async () => ({ data: Buffer.from(data), stat: stat(7) }) });
      const found = await nodes.know(NAME, entry(0));
      const { owner: by, ...rest } = found ?? { owner: undefined };
      const { owner: expectedBy, ...more } = { owner: undefined, ...expected };
      expect(rest, data.slice(0, 40)).toEqual({ token: 7, ...more });
      if (expectedBy === undefined) expect(by?.client ?? by?.host).toMatch(whose.client);
      else expect(by).toEqual(expectedBy);
    }
  });

  test("of ours is what was asked for, and no more", async () => {
    const { nodes, gets } = known();
    nodes.knowOwn(claimOf(NAME, "id0"), key(0), 5);
    nodes.knowOwn({ ...claimOf(NAME, "id1"), data: "d", exact: true }, key(1), 6);
    expect(await nodes.know(NAME, entry(0))).toEqual({ owner, leaseMs: 1_000, token: 5 });
    expect(await nodes.know(NAME, entry(1))).toEqual({ owner, leaseMs: 1_000, token: 6, data: "d", exact: true });
    expect(gets).toEqual([]);
  });
});

describe("the order of a queue", () => {
  test("pitfall 33: the order is that of the numbers up to the last that tells it, and from there on that of the transactions", async () => {
    const entries = (...orders: number[]): QueueEntry[] =>
      orders.map((order) => ({ key: `k${order}`, order, id: null, units: null, capacity: null }));
    const last = 2 ** 31 - 2;
    expect([isOrdered(entries(0, last)), isOrdered(entries(0, last + 1)), isOrdered(entries(-1, 0))]).toEqual([
      ...[true, false, false],
    ]);
    const created: Readonly<Record<string, number>> = { a: 30, b: 10, c: 20 };
    const { nodes } = nodesOn({
      children: async () => ({
        names: ["_c_a-lock-2147483647", "_c_b-lock--2147483648", "_c_c-lock-2147483647", "_c_gone-lock-2147483647"],
        stat: stat(1),
      }),
      get: async (path) => {
        const czxid = created[/_c_(\w+)-/.exec(path)?.[1] ?? ""];
        return czxid === undefined ? null : { data: Buffer.alloc(0), stat: stat(czxid) };
      },
    });
    expect((await nodes.queue("n")).entries.map(({ id }) => id)).toEqual(["b", "c", "a"]);
    const ordered = nodesOn({
      children: async () => ({ names: [2, 10, 1].map((n) => `_c_x${n}-lock-${sequenceText(n)}`), stat: stat(1) }),
    });
    expect((await ordered.nodes.queue("n")).entries.map(({ order }) => order)).toEqual([1, 2, 10]);
  });

  test("numbers, paths and names are written as the server writes them", () => {
    expect([0, 7, 2 ** 31 - 1, -7, -(2 ** 31)].map(sequenceText)).toEqual([
      ...["0000000000", "0000000007", "2147483647", "-000000007", "-2147483648"],
    ]);
    expect([folderOf("/a/b/c"), keyOf("/a/b/c")]).toEqual(["/a/b", "c"]);
    expect([escaped("\u0001/"), escaped("~%"), escaped("."), escaped("..")]).toEqual([
      ...["%01%2F", "%7E%25", "%2E", "%2E%2E"],
    ]);
  });
});

test("a listing in which somebody is always missing is read ten times, and shows who is there", async () => {
  for (const missing of [9, 10, 99]) {
    let [listings, absent] = [0, 0];
    const { nodes } = nodesOn({
      exists: async () => stat(1),
      children: async () => {
        listings += 1;
        return { names: ["_c_a-lock-0000000001", "_c_b-lock-0000000002"], stat: stat(1) };
      },
      get: async (path) => {
        if (path.includes("_c_b-") && (absent += 1) <= missing) return null;
        return { data: Buffer.alloc(0), stat: stat(3) };
      },
    });
    const shown = await stateOf(nodes, "n");
    expect([listings, shown?.holders.map(({ id }) => id), shown?.waiters.map(({ id }) => id)]).toEqual([
      ...[10, ["a"], missing === 9 ? ["b"] : []],
    ]);
  }
});

test("heartbeats ask for four hundred nodes at a time, and one question is asked for none", async () => {
  for (const [count, sizes] of [
    [0, [0]],
    [400, [400]],
    [401, [400, 1]],
    [801, [400, 400, 1]],
  ] as const) {
    const asked: number[] = [];
    const { nodes } = nodesOn({
      confirm: async (paths) => {
        asked.push(paths.length);
        return paths.map((path) => !path.endsWith("/i3"));
      },
    });
    const lost: string[] = [];
    const locals = new Map<string, NodeClaim>();
    const requests = Array.from({ length: count }, (_, n) => ({ name: "n", id: `i${n}` }));
    for (const { id } of requests) {
      const local = { path: `/n/${id}`, granted: true, oldest: true, over: false, endsAt: Infinity, token: 1 };
      const request = claimOf("n", id);
      locals.set(id, { ...local, id, exact: false, request, isOnlyAt: () => true } as unknown as NodeClaim);
    }
    const claims = {
      get: ({ id }: { readonly id: string }) => locals.get(id),
      lose: (claim: NodeClaim) => {
        lost.push(claim.id);
        claim.over = true;
      },
      endAt: nothing,
    } as unknown as NodeClaims;
    const watcher = { leftMs: async () => 9 } as unknown as NodeWatcher;
    const outcomes = await Promise.all(await confirm(nodes, claims, watcher, requests, 0));
    expect([asked, outcomes.length, lost]).toEqual([sizes, count, count === 0 ? [] : ["i3"]]);
    expect(outcomes.filter((one) => "kind" in one && one.kind === "granted")).toHaveLength(Math.max(0, count - 1));
  }
});

test("no more is said than the session is known to have: at the moment at which both end, all", async () => {
  const watcher = new NodeWatcher({ session: { until: 1_000, timeoutMs: 700 } } as unknown as Nodes, {
    lookUp: nothing,
    granted: nothing,
    watchOwn: nothing,
  });
  const claim = (endsAt: number): NodeClaim => ({ endsAt }) as NodeClaim;
  const said = async (endsAt: number, at: number) => [
    await watcher.leftMs(claim(endsAt), at),
    watcher.placeMs(claim(endsAt), at),
    watcher.maySay(claim(endsAt)),
  ];
  expect(await said(999, 100)).toEqual([899, undefined, true]);
  expect(await said(1_000, 100)).toEqual([900, undefined, true]);
  expect(await said(1_001, 100)).toEqual([900, 900, false]);
  expect(await said(2_000, 1_500), "never less than none").toEqual([0, 0, false]);
  expect(watcher.deathShowsMs()).toBe(700);
});

describe("the session's heartbeats", () => {
  test("count when the last was a thirty-second of the session ago, and not sooner", async () => {
    for (const [at, until] of [
      [999, 32_000],
      [1_000, 33_000],
    ] as const) {
      const clock = new FakeClock();
      let tell: (event: SessionEvent) => void = nothing;
      const client = {
        ...{ sessionTimeoutMs: 32_000, stop: nothing, close: async () => {}, exists: () => new Promise(() => {}) },
        start: async (listener: typeof tell) => void (tell = listener),
      } as unknown as ZooKeeperDriver;
      const session = new Session(client, clock, "/b", { ended: nothing, connected: nothing, warned: nothing });
      await session.start();
      tell({ kind: "connected", sentAt: 0, fresh: true });
      await clock.advance(at);
      await session.read(async () => {});
      // A quarter later a write proves it.
      await clock.advance(8_000);
      await session.write(async () => {});
      expect(session.until).toBe(until);
      await session.close(true);
    }
  });

  test("each code by which a server says no to a write was decided by a majority, and no other", async () => {
    const decided: string[] = [];
    for (const [name, code] of Object.entries(CODE)) {
      const clock = new FakeClock();
      let tell: (event: SessionEvent) => void = nothing;
      const client = {
        ...{ sessionTimeoutMs: 32_000, stop: nothing, close: async () => {}, exists: () => new Promise(() => {}) },
        start: async (listener: typeof tell) => void (tell = listener),
      } as unknown as ZooKeeperDriver;
      const session = new Session(client, clock, "/b", { ended: nothing, connected: nothing, warned: nothing });
      await session.start();
      tell({ kind: "connected", sentAt: 5, fresh: false });
      await clock.advance(100);
      await session.write(() => Promise.reject(failing(code))).catch(nothing);
      if (session.until === 32_005) decided.push(name);
      await session.close(true);
    }
    expect(decided.toSorted()).toEqual([
      ...["badVersion", "invalidAcl", "noAuth", "noChildrenForEphemerals", "noNode", "nodeExists", "notEmpty"],
      "quotaExceeded",
    ]);
  });
});

describe("queues that are followed", () => {
  test("are a thousand, those that were asked for last, and of others nothing stays watched", () => {
    const unwatched: string[] = [];
    const client = { exists: async () => stat(1), unwatch: (path: string) => void unwatched.push(path) };
    const session = { client, read: (call: (one: unknown) => unknown) => call(client) } as unknown as Session;
    const queues = new FollowedQueues(session, () => false);
    const folders = (n: number) => ({ claims: `/c/${n}`, tombstones: `/t/${n}` });
    for (let n = 0; n < 1_000; n += 1) queues.follow(folders(n));
    expect(unwatched).toEqual([]);
    queues.follow(folders(0));
    expect(unwatched).toEqual([]);
    queues.follow(folders(1_000));
    expect(unwatched).toEqual(["/c/1", "/t/1"]);
    expect([queues.get("/c/1"), queues.get("/c/0")?.armed, queues.get("/c/2")?.armed]).toEqual([undefined, true, true]);
  });

  test("may have tombstones until it is known that they have none, and what is told late of what was forgotten says nothing", async () => {
    const answers: ((there: unknown) => void)[] = [];
    const client = { exists: () => new Promise((resolve) => answers.push(resolve)), unwatch: nothing };
    const session = { client, read: (call: (one: unknown) => unknown) => call(client) } as unknown as Session;
    const queues = new FollowedQueues(session, () => false);
    const folders = { claims: "/c", tombstones: "/t" };
    const queue = queues.follow(folders);
    expect([queue.armed, queue.buried, answers.length]).toEqual([true, true, 2]);
    queues.follow(folders);
    expect(answers, "it is watched already").toHaveLength(2);
    queues.forgetAll();
    expect(queue.armed).toBe(false);
    queues.follow(folders);
    answers[0]?.(stat(1));
    answers[1]?.(null);
    await settle();
    expect(queue.buried, "that was before").toBe(true);
    answers[2]?.(stat(1));
    answers[3]?.(null);
    await settle();
    expect(queue.buried).toBe(false);
    queues.forgetAll();
    queues.follow(folders);
    answers[4]?.(stat(1));
    answers[5]?.(stat(1));
    await settle();
    expect(queue.buried, "there are some").toBe(true);
  });
});

describe("a claim of a queue that is followed", () => {
  const key = (n: number): string => `_c_id${n}-lock-${sequenceText(n)}`;

  /** Nobody is there, and that is known. Creations are answered when the test says so. */
  async function followed() {
    const creations: { answer(): void; fail(): void }[] = [];
    const asked: string[] = [];
    const { nodes } = nodesOn({
      create: (path) =>
        new Promise((resolve, reject) => {
          const created = { path: `/base/n/${key(creations.length)}`, czxid: 10 + creations.length };
          asked.push(`create ${path}`);
          creations.push({ answer: () => resolve(created), fail: () => reject(failing(CODE.connectionLoss)) });
        }),
      exists: async (path) => {
        asked.push(`exists ${path}`);
        return path.includes("~tombstones") ? null : stat(1);
      },
      children: async () => {
        asked.push("children");
        return { names: creations.map((_, n) => key(n)), stat: stat(1) };
      },
    });
    nodes.knowOwn(claimOf("n", "before"), "_c_before-lock-0000000000", 1);
    await nodes.queue("n");
    await settle();
    const claim = (n: number) => {
      asked.length = 0;
      const appended = nodes.append({ name: "n", id: `id${n}` }, `_c_id${n}-lock-`, Buffer.alloc(0));
      appended.catch(nothing);
      return appended;
    };
    const readings = (): number => asked.filter((one) => one === "children").length;
    const lookups = (): number => asked.filter((one) => one.includes(`/~tombstones/n/`)).length;
    return { nodes, creations, asked, claim, readings, lookups };
  }

  test("is known without a reading; while another one is being created, which nobody watches yet, it is read at once", async () => {
    const { nodes, creations, claim, readings, lookups } = await followed();
    const appended = claim(0);
    await settle();
    expect([readings(), lookups()]).toEqual([0, 0]);
    creations[0]?.answer();
    const first = await appended;
    expect([(await first.queue).wasRead, await first.buried]).toEqual([false, false]);
    nodes.watched(`/base/n/${key(0)}`, true);
    const [second, third] = [claim(1), claim(2)];
    await settle();
    expect(readings(), "in the same round trip").toBe(1);
    for (const n of [1, 2]) creations[n]?.answer();
    const { entries, wasRead } = await (await third).queue;
    expect([entries.length, wasRead]).toEqual([3, true]);
    await (await second).queue;
    for (const n of [1, 2]) nodes.watched(`/base/n/${key(n)}`, true);
    const fourth = claim(3);
    await settle();
    expect(readings(), "nobody is being created any more, and all are watched").toBe(0);
    creations[3]?.answer();
    const known = await (await fourth).queue;
    expect([known.entries.map(({ id }) => id), known.wasRead]).toEqual([["id0", "id1", "id2", "id3"], false]);
    const fifth = claim(4);
    await settle();
    expect(readings(), "the fourth is not watched").toBe(1);
    creations[4]?.answer();
    await fifth;
  });

  test("is read where something changed while it was created, and so is whether it was released", async () => {
    const { nodes, creations, claim, readings, lookups } = await followed();
    const first = claim(0);
    await settle();
    nodes.followed.get("/base/n")?.forget();
    creations[0]?.answer();
    const { queue, buried } = await first;
    expect([(await queue).wasRead, await buried, readings(), lookups()]).toEqual([true, false, 1, 1]);
  });

  test("that could not be created is not waited for by the next", async () => {
    const { creations, claim, readings } = await followed();
    const first = claim(0);
    await settle();
    creations[0]?.fail();
    await expect(first).rejects.toMatchObject({ code: CODE.connectionLoss });
    void claim(1);
    await settle();
    expect(readings()).toBe(0);
  });
});

describe("what a waiter watches", () => {
  type Asked = { readonly what: string; readonly watcher: Watcher | undefined };

  function watching() {
    const asked: Asked[] = [];
    const unwatched: string[] = [];
    const state = { node: "there" as "there" | "gone" | "unknown", names: [] as string[] };
    const { nodes } = nodesOn({
      get: async (path, watcher) => {
        asked.push({ what: path, watcher });
        if (state.node === "unknown") throw failing(CODE.connectionLoss);
        return state.node === "gone" ? null : { data: Buffer.alloc(0), stat: stat(1) };
      },
      exists: async () => stat(1),
      children: async (path, watcher) => {
        asked.push({ what: path, watcher });
        return { names: state.names, stat: stat(1) };
      },
      unwatch: (path) => void unwatched.push(path),
    });
    const told: boolean[] = [];
    const watch = new PredecessorWatch(nodes, "n", (cleared) => void told.push(cleared));
    const paths = (): string[] => asked.splice(0).map(({ what }) => what.replace("/base/", ""));
    return { asked, unwatched, state, nodes, told, watch, paths };
  }

  const queueOf = (capacity: number, ...units: readonly number[]): Queue =>
    new Queue(units.map((one, n) => ({ key: `k${n}`, order: n, id: `id${n}`, units: one, capacity })));
  const at = (queue: Queue, n: number): QueueEntry => queue.entries[n] as QueueEntry;

  test("is the one before it, once, until that changes or is another", async () => {
    const { watch, asked, paths, unwatched, told } = watching();
    const queue = queueOf(1, 1, 1, 1);
    expect(await watch.watch(queue, at(queue, 2))).toBeNull();
    const [{ watcher } = {}] = asked;
    expect(paths()).toEqual(["n/k1"]);
    expect([await watch.watch(queue, at(queue, 2)), paths()]).toEqual([null, []]);
    watcher?.();
    expect(told).toEqual([false]);
    await watch.watch(queue, at(queue, 2));
    expect(paths(), "it was told once").toEqual(["n/k1"]);
    const shorter = new Queue([at(queue, 0), at(queue, 2)]);
    await watch.watch(shorter, at(queue, 2));
    expect([paths(), unwatched]).toEqual([["n/k0"], ["/base/n/k1"]]);
    watch.stop();
    watch.stop();
    expect(unwatched).toEqual(["/base/n/k1", "/base/n/k0"]);
  });

  test("is all of them for the first waiter of a semaphore, anew after each change", async () => {
    const { watch, asked, paths, unwatched, told } = watching();
    const queue = queueOf(2, 1, 1, 1);
    await watch.watch(queue, at(queue, 2));
    const all = asked.find(({ what }) => what === "/base/n")?.watcher;
    expect(paths().toSorted()).toEqual(["n", "n/k1"]);
    await watch.watch(queue, at(queue, 2));
    expect(paths()).toEqual([]);
    all?.();
    expect(told).toEqual([false]);
    await watch.watch(queue, at(queue, 2));
    expect(paths()).toEqual(["n"]);
    watch.stop();
    expect(unwatched.toSorted()).toEqual(["/base/n", "/base/n/k1"]);
    watch.stop();
    expect(unwatched).toHaveLength(2);
  });

  test("that left meanwhile shows in the queue, which is read again; what could not be asked for is watched no more", async () => {
    const { watch, state, paths, unwatched } = watching();
    const queue = queueOf(1, 1, 1);
    state.node = "gone";
    state.names = ["_c_id1-lock-0000000001"];
    const newer = await watch.watch(queue, at(queue, 1));
    expect([newer?.entries.map(({ id }) => id), paths()]).toEqual([["id1"], ["n/k0", "n"]]);
    state.node = "unknown";
    await expect(watch.watch(queue, at(queue, 1))).rejects.toMatchObject({ code: CODE.connectionLoss });
    expect(unwatched).toEqual(["/base/n/k0"]);
    paths();
    state.node = "there";
    expect([await watch.watch(queue, at(queue, 1)), paths()]).toEqual([null, ["n/k0"]]);
  });

  test("clears the way by its end alone where it is the last in it, the queue is followed, and nothing else was heard", async () => {
    const cases = [
      { what: "it left", deleted: true, cleared: true },
      { what: "it changed", deleted: false, cleared: false },
      { what: "something else was heard", deleted: true, forgets: true, cleared: false },
      { what: "the queue is not followed", deleted: true, unfollowed: true, cleared: false },
      { what: "it may have become smaller", deleted: true, units: 2, cleared: false },
      { what: "another one is in the way", deleted: true, others: 1, cleared: false },
    ];
    for (const { what, deleted, cleared, forgets, unfollowed, units = 1, others = 0 } of cases) {
      const { watch, asked, nodes, told } = watching();
      if (unfollowed !== true) nodes.followed.follow(nodes.foldersOf("n"));
      await settle();
      const queue = queueOf(units, ...Array.from({ length: others + 2 }, () => units));
      await watch.watch(queue, at(queue, others + 1));
      expect(watch.isLast, what).toBe(unfollowed !== true && units === 1 && others === 0);
      if (forgets === true) nodes.followed.get("/base/n")?.forget();
      asked[0]?.watcher?.(deleted);
      expect(told, what).toEqual([cleared]);
      expect(watch.isLast, "no more").toBe(false);
    }
  });
});

describe("options", () => {
  test("the shortest session and call that can be asked for", () => {
    const { settings, wire, callTimeoutMs } = checkUrlOptions({ sessionTimeoutMs: 500, callTimeoutMs: 1 }, false);
    expect([settings.base, settings.nodeNames, wire.sessionTimeoutMs, callTimeoutMs]).toEqual([
      ...["/holdfast", "curator", 500, 1],
    ]);
    expect(checkUrlOptions({ sessionTimeoutMs: 500.6 }, false).wire.sessionTimeoutMs).toBe(501);
    expect(checkUrlOptions({}, false).wire.sessionTimeoutMs).toBe(20_000);
    for (const wrong of [{ sessionTimeoutMs: 499 }, { sessionTimeoutMs: 2 ** 31 }, { callTimeoutMs: 0.5 }])
      expect(() => checkUrlOptions(wrong, false), JSON.stringify(wrong)).toThrow(InvalidOptionError);
    expect(() => checkUrlOptions({ callTimeoutMs: 2 ** 31 }, false)).toThrow(InvalidOptionError);
  });

  test("who may use the nodes: whoever gave the same password if one was given, all otherwise, or as it is said", () => {
    const [open, creator] = [
      { perms: 31, scheme: "world", id: "anyone" },
      { perms: 31, scheme: "auth", id: "" },
    ];
    const mine = { perms: 1, scheme: "ip", id: "127.0.0.1" };
    expect(checkUrlOptions({}, false).wire.acl).toEqual([open]);
    expect(checkUrlOptions({}, true).wire.acl).toEqual([creator]);
    expect(checkUrlOptions({ acl: "open" }, true).wire.acl).toEqual([open]);
    expect(checkUrlOptions({ acl: "creator" }, false).wire.acl).toEqual([creator]);
    expect(checkUrlOptions({ acl: [mine, open] }, false).wire.acl).toEqual([mine, open]);
    for (const acl of [
      [],
      "all",
      [mine, null],
      [{ ...mine, perms: 0.5 }],
      [{ ...mine, scheme: 1 }],
      [{ ...mine, id: 1 }],
    ])
      expect(() => checkUrlOptions({ acl: acl as never }, false), JSON.stringify(acl)).toThrow(InvalidOptionError);
  });

  test("the folder of all names is a path that a server takes, and no option is made up", () => {
    for (const base of ["/a", "/a/b.c", "/a/zookeeper", "/..a", "/zookeepers"])
      expect(checkOptions({ base }).base).toBe(base);
    for (const base of [
      "/a/./b",
      "/..",
      "/a\u0000",
      "/a\u001f",
      "/\u007f",
      "/a\ud800",
      "/\uf8ff",
      "/\ufff0",
      "/zookeeper",
      7,
      "a/b",
    ])
      expect(() => checkOptions({ base: base as string }), String(base)).toThrow(InvalidOptionError);
    expect(() => checkOptions({ nodeNames: "kazoos" as never })).toThrow(InvalidOptionError);
    expect(() => checkOptions({ sessionTimeoutMs: 1_000 } as never)).toThrow(InvalidOptionError);
  });
});

describe("an engine on a client of one's own", () => {
  const waiting = (lastCause?: Error) => {
    let begin = nothing;
    const stopped: unknown[] = [];
    const client = {
      ...{ sessionTimeoutMs: 20_000, get: async () => null, create: async () => ({ path: "", czxid: 1 }) },
      ...(lastCause === undefined ? {} : { lastCause }),
      start: () => new Promise<void>((resolve) => (begin = resolve)),
      stop: (listener: unknown) => void stopped.push(listener),
      close: () => Promise.reject(new Error("it is not the engine's to close")),
    } as unknown as ZooKeeperDriver;
    return { client, stopped, begin: () => begin() };
  };

  test("is waited for twice as long as a call, and told why; should it open later nobody listens", async () => {
    for (const cause of [new Error("refused there"), undefined]) {
      const { client, stopped, begin } = waiting(cause);
      const clock = new FakeClock();
      let outcome: unknown;
      zookeeperEngine(client, { clock }).catch((error: unknown) => (outcome = error));
      await clock.advance(9_999);
      expect(outcome).toBeUndefined();
      await clock.advance(1);
      expect(outcome).toBeInstanceOf(EngineUnavailableError);
      expect(((outcome as Error).cause as Error).message).toBe(cause?.message ?? "no connection");
      expect(stopped).toHaveLength(0);
      begin();
      await settle();
      expect([stopped.length, clock.pending]).toEqual([1, 0]);
    }
  });

  test("that opens in time is not given up later, and stays the client's when it is closed", async () => {
    const { client, stopped, begin } = waiting();
    const clock = new FakeClock();
    const opening = zookeeperEngine(client, { clock });
    await clock.advance(9_000);
    begin();
    const engine = await opening;
    await clock.advance(60_000);
    expect([stopped.length, clock.pending]).toEqual([0, 0]);
    await engine[Symbol.asyncDispose]();
    expect(stopped).toHaveLength(1);
  });
});

describe("a change of the capacity", () => {
  const waiting = (units: number | null): Queue =>
    new Queue([
      { key: "k1", order: 1, id: "id1", units: 3, capacity: 3 },
      { key: "k2", order: 2, id: "id2", units, capacity: units === null ? null : 3 },
    ]);

  test("drops nobody who does not say what it wants, and who wants as much as there is", () => {
    expect(capacityChange(waiting(null), 3, 1)).toEqual({ drops: [], write: true });
    expect(capacityChange(waiting(2), 3, 2)).toEqual({ drops: [], write: true });
    expect(capacityChange(waiting(2), 3, 1)).toMatchObject({ drops: [{ key: "k2" }], write: true });
    const unstated = new Queue([{ key: "k1", order: 1, id: null, units: null, capacity: null }]);
    expect(capacityChange(unstated, 2, READERS_MAX)).toEqual({ kind: "set" });
  });

  test("is tried fifty times while others come first", async () => {
    for (const failures of [49, 50]) {
      let changes = 0;
      const changed = setCapacity(
        { from: 3, to: 4 },
        async () => ({ queue: waiting(1) }),
        async () => (changes += 1) > failures,
      );
      if (failures === 50) await expect(changed).rejects.toThrow(/others came first/);
      else expect(await changed).toEqual({ kind: "set" });
      expect(changes).toBe(50);
    }
  });
});
