import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import { READERS_MAX } from "../../src/core/limits.js";
import type { Watcher, ZooKeeperDriver } from "../../src/engines/zookeeper/driver.js";
import { stateOf } from "../../src/testing/conformance/kit.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { until } from "../servers/process.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";
import type { World } from "../virtual/lockstep/lockstep.js";
import { SESSION_MS, zookeeperWorld } from "../virtual/lockstep/zookeeper.js";
import { listening } from "./zookeeper-rig.js";

/** What each verb asks of the server, in virtual time: a fast path that is not taken, and a watch that is left, show here and nowhere else. */

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper({ lines: [`maxSessionTimeout=${SESSION_MS}`] })), 60_000);
afterAll(() => server?.running.stop());

/** What was asked since the last time, in order. */
class Log {
  readonly #said: string[] = [];
  #base = "";
  #driver: ZooKeeperDriver | undefined;

  get said(): readonly string[] {
    return this.#said;
  }

  /** A folder past the engine. */
  async make(folder: string): Promise<void> {
    await this.#driver?.create(`${this.#base}/${folder}`, Buffer.alloc(0), "persistent");
  }

  /** The paths without the folder of all names; the numbers of nodes without zeros. */
  #say(what: string, path: string, watcher?: Watcher): void {
    [this.#base] = /^\/[^/]+/.exec(path) ?? [this.#base];
    const short = path
      .replace(/^\/[^/]+\/?/, "")
      .replace("_c_", "")
      .replace(/-?0{9}(\d)$/, " $1");
    this.#said.push(`${what} ${short}${watcher === undefined ? "" : ", watched"}`);
  }

  get through(): (one: ZooKeeperDriver) => ZooKeeperDriver {
    return (one) => this.#logged((this.#driver = one));
  }

  #logged(one: ZooKeeperDriver): ZooKeeperDriver {
    return {
      ...one,
      sessionTimeoutMs: SESSION_MS,
      get sessionId() {
        return one.sessionId;
      },
      create: (path, data, mode) => {
        this.#say(`create ${mode}`, path);
        return one.create(path, data, mode);
      },
      remove: (path, version) => {
        this.#say("remove", path);
        return one.remove(path, version);
      },
      set: (path, data, version) => {
        this.#say("set", path);
        return one.set(path, data, version);
      },
      get: (path, watcher) => {
        this.#say("get", path, watcher);
        return one.get(path, watcher);
      },
      exists: (path, watcher) => {
        this.#say("exists", path, watcher);
        return one.exists(path, watcher);
      },
      children: (path, watcher) => {
        this.#say("children", path, watcher);
        return one.children(path, watcher);
      },
      unwatch: (path, watcher) => {
        this.#say("unwatch", path);
        one.unwatch(path, watcher);
      },
      confirm: (paths) => {
        this.#say(`confirm ${paths.length}`, "");
        return one.confirm(paths);
      },
      transact: (operations) => {
        this.#say(operations.map(({ kind }) => kind).join("+"), operations[0]?.path ?? "");
        return one.transact(operations);
      },
    };
  }

  take(): string[] {
    return this.#said.splice(0);
  }
}

async function opened(clients: number): Promise<{ world: World; engines: Engine[]; logs: Log[] }> {
  const logs = Array.from({ length: clients }, () => new Log());
  let opening = 0;
  const world = zookeeperWorld(server.port, new SeededChance(1), "curator", (one) =>
    (logs[opening++] ?? new Log()).through(one),
  );
  const engines: Engine[] = [];
  for (const _ of logs) engines.push(await world.open());
  onTestFinished(async () => {
    for (const engine of engines) await engine[Symbol.asyncDispose]();
  });
  for (const log of logs) log.take();
  return { world, engines, logs };
}

const owner = { client: "c", host: "h", pid: 1 };
const claimOf = (name: string, id: string, over: Partial<ClaimRequest> = {}): ClaimRequest => ({
  ...{ name, id, units: 1, capacity: 1, leaseMs: 60_000, wait: true, owner },
  ...over,
});

/** Runs one step after the other; `expected`: what each client asks meanwhile, whatever the order of its events. */
async function steps(clients: number, folders: readonly string[]) {
  const { world, engines, logs } = await opened(clients);
  // Folders that stay: the server removes empty ones at moments of its own.
  for (const folder of folders) await logs[0]?.make(folder);
  for (const log of logs) log.take();
  const step = async (
    what: string,
    run: () => Promise<unknown>,
    ...expected: readonly (readonly string[])[]
  ): Promise<unknown> => {
    const answer = await run();
    const wanted = logs.map((_, n) => (expected[n] ?? []).toSorted());
    const asked = (): string[][] => logs.map((log) => log.said.toSorted());
    await until(what, () => isDeepStrictEqual(asked(), wanted)).catch(() => {});
    await world.time.quiet();
    expect(asked(), what).toEqual(wanted);
    for (const log of logs) log.take();
    return answer;
  };
  return { world, engines: engines as [Engine, Engine], step };
}

const kindOf = async (answer: Promise<{ readonly kind: string }>): Promise<string> => (await answer).kind;
const settled = (engine: Engine, name: string, id: string): Promise<unknown> =>
  engine.release({ name, id, tombstone: "never" });
const LATER_MS = 250;
const FOLLOWS = (name: string): readonly string[] => [`exists ${name}, watched`, `exists ~tombstones/${name}, watched`];

test("a mutex: read when it is first claimed, followed when it is claimed again, and then known without a reading", async () => {
  const { world, engines, step } = await steps(2, ["n"]);
  const [one, two] = engines;
  const events = listening(two);
  const took = (engine: Engine, id: string, over: Partial<ClaimRequest> = {}) =>
    kindOf(engine.claim(claimOf("n", id, over)));
  const created = (id: string): string => `create ephemeral-sequential n/${id}-lock-`;
  await step("the first", () => took(one, "a"), [created("a"), "exists ~tombstones/n/a", "children n"]);
  await step("is released", () => settled(one, "n", "a"), ["remove n/a-lock 0"]);
  await step("the second", () => took(one, "b"), [
    created("b"),
    "exists ~tombstones/n/b",
    ...FOLLOWS("n"),
    "children n",
  ]);
  await step("is released", () => settled(one, "n", "b"), ["remove n/b-lock 1"]);
  await step("the third", () => took(one, "c"), [created("c")]);
  // Nobody watched the third until now; who stands behind it counts on it.
  await step("behind it", () => took(one, "d"), [
    created("d"),
    "children n",
    "exists n/c-lock 2, watched",
    "exists n/d-lock 3, watched",
  ]);
  await step("a try is refused by what was read", () => took(one, "t", { wait: false }), [
    created("t"),
    "children n",
    "remove n/t-lock 4",
  ]);
  await step("behind those that are watched", () => took(one, "e"), [created("e"), "exists n/e-lock 5, watched"]);
  await step("and leaves", () => settled(one, "n", "e"), ["remove n/e-lock 5"]);
  const both = ["c", "d"].map((id) => ({ name: "n", id }));
  await step("heartbeats", () => one.renew(both), ["confirm 2 ", "children n"]);
  await step("of the oldest holder", () => one.renew(both.slice(0, 1)), ["confirm 1 "]);
  await step("time passes", () => world.time.advance(LATER_MS));
  await step("to the next of its own client", () => settled(one, "n", "c"), ["remove n/c-lock 2", "children n"]);
  await step(
    "of another client",
    () => took(two, "f"),
    [],
    [created("f"), "exists ~tombstones/n/f", "children n", "get n/d-lock 3", "get n/d-lock 3, watched"],
  );
  await step(
    "behind that",
    () => took(two, "g"),
    [],
    [created("g"), "exists ~tombstones/n/g", ...FOLLOWS("n"), "children n", "exists n/f-lock 6, watched"],
  );
  await step("time passes", () => world.time.advance(LATER_MS), [], ["exists n/g-lock 7, watched"]);
  await step(
    "handed over, not by its last word",
    async () => {
      await settled(one, "n", "d");
      await until("it is told", () => events.some(({ kind }) => kind === "granted"));
    },
    ["remove n/d-lock 3"],
    ["children n"],
  );
  await step("to the next", () => settled(two, "n", "f"), [], ["remove n/f-lock 6", "children n"]);
  await step("of another client, by a client that follows", () => took(one, "h"), [
    created("h"),
    "children n",
    "get n/g-lock 7",
    "get n/g-lock 7, watched",
    "exists n/h-lock 8, watched",
  ]);
  const granted = listening(one);
  await step(
    "handed over by the event alone",
    async () => {
      await settled(two, "n", "g");
      await until("it is told", () => granted.some(({ kind }) => kind === "granted"));
    },
    [],
    ["remove n/g-lock 7"],
  );
  await step("is released", () => settled(one, "n", "h"), ["remove n/h-lock 8"]);
});

test("a try of a name that is held by another client: refused by the one reading that came with it", async () => {
  const { engines, step } = await steps(2, ["t"]);
  const [one, two] = engines;
  const claimed = (engine: Engine, id: string, wait: boolean) => () => kindOf(engine.claim(claimOf("t", id, { wait })));
  await step("it is held", claimed(one, "a", true), [
    ...["create ephemeral-sequential t/a-lock-", "exists ~tombstones/t/a", "children t"],
  ]);
  const answer = await step(
    "a try",
    claimed(two, "b", false),
    [],
    [
      ...["create ephemeral-sequential t/b-lock-", "exists ~tombstones/t/b", "children t"],
      ...["get t/a-lock 0", "remove t/b-lock 1"],
    ],
  );
  expect(answer).toBe("busy");
  await step("is released", () => settled(one, "t", "a"), ["remove t/a-lock 0"]);
});

test("a semaphore: the first waiter watches all, the others the one before them, and nothing stays watched", async () => {
  const { world, engines, step } = await steps(2, ["s"]);
  const [one, two] = engines;
  const events = listening(two);
  const granted = (): number => events.filter(({ kind }) => kind === "granted").length;
  const took = (engine: Engine, id: string, capacity = 2) => kindOf(engine.claim(claimOf("s", id, { capacity })));
  const created = (id: string, capacity = 2): string => `create ephemeral-sequential s/${id}-1.${capacity}-lock-`;
  await step("the first", () => took(one, "a"), [created("a"), "exists ~tombstones/s/a", "children s"]);
  await step("the second", () => took(one, "b"), [
    created("b"),
    "exists ~tombstones/s/b",
    ...FOLLOWS("s"),
    "children s",
    "exists s/a-1.2-lock 0, watched",
    "exists s/b-1.2-lock 1, watched",
  ]);
  await step(
    "the first waiter",
    () => took(two, "c"),
    [],
    [
      created("c"),
      "exists ~tombstones/s/c",
      "children s",
      "get s/a-1.2-lock 0",
      "get s/b-1.2-lock 1, watched",
      ...FOLLOWS("s"),
      "children s, watched",
    ],
  );
  await step(
    "it withdraws",
    () => settled(two, "s", "c"),
    [],
    ["unwatch s/b-1.2-lock 1", "unwatch s", "remove s/c-1.2-lock 2"],
  );
  await step(
    "another",
    () => took(two, "d"),
    [],
    [created("d"), "children s", "get s/b-1.2-lock 1, watched", "children s, watched"],
  );
  await step("time passes", () => world.time.advance(LATER_MS), [], ["exists s/d-1.2-lock 3, watched"]);
  await step(
    "handed over",
    async () => {
      await settled(one, "s", "a");
      await until("it is told", () => granted() === 1);
    },
    ["remove s/a-1.2-lock 0"],
    ["children s", "unwatch s/b-1.2-lock 1", "get s/b-1.2-lock 1"],
  );
  await step("it is shown", () => stateOf(one, "s"), ["confirm 0 ", "children s", "get s/d-1.2-lock 3"]);
  await step("and again", () => stateOf(one, "s"), ["confirm 0 ", "children s"]);
  await step("is released", () => settled(two, "s", "d"), [], ["remove s/d-1.2-lock 3"]);
  await step("is released", () => settled(one, "s", "b"), ["remove s/b-1.2-lock 1"]);
});

test("readers: who waits watches the writer before it, also when it becomes a reader", async () => {
  const { world, engines, step } = await steps(2, ["r"]);
  const [one, two] = engines;
  const events = listening(two);
  const all = { capacity: READERS_MAX };
  const writer = { units: READERS_MAX, capacity: READERS_MAX };
  const took = (engine: Engine, id: string, over: Partial<ClaimRequest>) =>
    kindOf(engine.claim(claimOf("r", id, over)));
  await step("a writer", () => took(one, "w", writer), [
    "create ephemeral-sequential r/w-__WRIT__",
    "exists ~tombstones/r/w",
    "children r",
  ]);
  await step("time passes", () => world.time.advance(LATER_MS), ["exists r/w-__WRIT__ 0, watched"]);
  await step(
    "a reader",
    () => took(two, "a", all),
    [],
    [
      "create ephemeral-sequential r/a-__READ__",
      "exists ~tombstones/r/a",
      "children r",
      "get r/w-__WRIT__ 0",
      "get r/w-__WRIT__ 0, watched",
    ],
  );
  await step("time passes", () => world.time.advance(LATER_MS), [], ["exists r/a-__READ__ 1, watched"]);
  await step(
    "the writer becomes a reader",
    async () => {
      await one.resize(claimOf("r", "w"), 1);
      await until("it is told", () => events.some(({ kind }) => kind === "granted"));
    },
    ["create+remove r/w-__READ__ 0", "exists r/w-__READ__ 0, watched"],
    [...FOLLOWS("r"), "children r", "get r/w-__READ__ 0"],
  );
  await step("is released", () => settled(two, "r", "a"), [], ["remove r/a-__READ__ 1"]);
  await step("is released", () => settled(one, "r", "w"), ["remove r/w-__READ__ 0"]);
});

test("a capacity: it is written once, the last holder is touched, and what is followed is followed anew", async () => {
  const { engines, step } = await steps(2, ["c"]);
  const [one] = engines;
  const created = (id: string, of: number): string => `create ephemeral-sequential c/${id}-1.${of}-lock-`;
  const took = (id: string, capacity: number) => kindOf(one.claim(claimOf("c", id, { capacity })));
  await step("a claim", () => took("a", 2), [created("a", 2), "exists ~tombstones/c/a", "children c"]);
  await step("is raised", () => one.setCapacity("c", 2, 3), [
    ...["confirm 0 ", ...FOLLOWS("c"), "children c", "exists c", "children c", "set c"],
    ...["unwatch c", "unwatch ~tombstones/c", ...FOLLOWS("c"), "children c", "get c"],
    ...["get c/a-1.2-lock 0", "set c/a-1.2-lock 0"],
  ]);
  await step("is so", () => one.setCapacity("c", 2, 3), ["confirm 0 ", "children c", "get c"]);
  await step("is another", () => one.setCapacity("c", 2, 4), ["confirm 0 ", "children c", "get c"]);
  await step("a claim", () => took("b", 3), [
    ...[created("b", 3), "children c", "get c"],
    ...["exists c/a-1.2-lock 0, watched", "exists c/b-1.3-lock 1, watched"],
  ]);
  for (const id of ["a", "b"])
    await step("is released", () => one.release({ name: "c", id, tombstone: "never" }), [
      `remove c/${id}-1.${id === "a" ? 2 : 3}-lock ${id === "a" ? 0 : 1}`,
    ]);
});

test("a cell: a write is noted, a watch is set again with each change, and ends", async () => {
  const { engines, step } = await steps(2, ["~cells", "~operations"]);
  const [one, two] = engines.map(({ cells }) => cells);
  if (!one || !two) throw new Error("no cells");
  const heard: (string | null)[] = [];
  const write = (operation: string, expected: number, value: string | null) =>
    one.write({ name: "c", operation, expected, value });
  const asks = (id: string): readonly string[] => [`get ~operations/${id}`, "exists ~cells", "get ~cells/c"];
  const first = await step("the first", () => write("o1", 0, "v"), [
    ...[...asks("o1"), "create+create ~operations/o1", "exists ~operations/o1"],
  ]);
  const { version } = (first as { readonly cell: { readonly version: number } }).cell;
  let stop = (): void => {};
  await step(
    "it is watched",
    async () => void (stop = two.watch("c", ({ value }) => heard.push(value))),
    [],
    ["exists ~cells/c, watched", "get ~cells/c"],
  );
  await step("it is read", () => two.read("c"), [], ["confirm 0 ", "get ~cells/c"]);
  await step(
    "it is written",
    async () => {
      await write("o2", version, "w");
      await until("it is heard", () => heard.includes("w"));
    },
    [...asks("o2"), "create+set+check ~operations/o2", "exists ~operations/o2"],
    ["exists ~cells/c, watched", "get ~cells/c"],
  );
  await step("it is another", () => write("o3", version, "x"), [
    ...[...asks("o3"), "create ~operations/o3", "exists ~operations/o3"],
  ]);
  await step("it was written before", () => write("o2", version, "w"), asks("o2"));
  await step("it is watched no more", async () => stop(), [], ["unwatch ~cells/c"]);
  const { version: now } = await one.read("c");
  await step("is removed", () => write("o4", now, null), [
    ...["confirm 0 ", "get ~cells/c", ...asks("o4"), "create+remove+set ~operations/o4", "exists ~operations/o4"],
  ]);
});
