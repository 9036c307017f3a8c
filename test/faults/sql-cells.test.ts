import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Cells } from "../../src/core/cells.js";
import type { Engine } from "../../src/core/engine.js";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import { poolOf as mariadbPool, startMariadb } from "../servers/mariadb.js";
import { poolOf as postgresPool, query, startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";

/** Statements whose text has a certain word are kept back, from `hold` until `letGo`. */
class Gate {
  readonly #word: string;
  #held: (() => void)[] | null = null;

  constructor(word: string) {
    this.#word = word;
  }

  get waiting(): number {
    return this.#held?.length ?? 0;
  }

  hold(): void {
    this.#held = [];
  }

  letGo(): void {
    const held = this.#held ?? [];
    this.#held = null;
    for (const send of held) send();
  }

  /** In place of the connection's own `query`, by promise or by callback. */
  guard(connection: { query: (...args: never[]) => unknown }): void {
    const query = connection.query.bind(connection) as (...args: unknown[]) => unknown;
    const guarded = (...args: unknown[]): unknown => {
      const held = this.#held;
      if (held === null || !JSON.stringify(args[0]).includes(this.#word)) return query(...args);
      if (typeof args.at(-1) === "function") return void held.push(() => void query(...args));
      return new Promise((resolve) => held.push(() => resolve(query(...args))));
    };
    connection.query = guarded;
  }
}

type Guarded = { readonly watching: Engine; readonly other: Engine };

const STORES = {
  async PostgreSQL() {
    const server = await startPostgres();
    const open = async (gate?: Gate): Promise<Engine> => {
      const pool = postgresPool(server.url);
      if (gate !== undefined) pool.on("connect", (connection) => gate.guard(connection));
      cleanups.push(() => pool.end());
      return postgresEngine(pool);
    };
    // Anybody may send on a channel.
    const garbage = (): Promise<unknown> => query(server.url, `SELECT pg_notify('"holdfast".cell', 'not JSON')`);
    return { open, garbage, stop: () => server.running.stop() };
  },
  async MariaDB() {
    const server = await startMariadb();
    const open = async (gate?: Gate): Promise<Engine> => {
      const pool = mariadbPool(server.url);
      if (gate !== undefined) pool.pool.on("connection", (connection) => gate.guard(connection));
      cleanups.push(() => pool.end());
      return mysqlEngine(pool);
    };
    // Its cells are polled: there is no channel to send on.
    return { open, garbage: async (): Promise<void> => {}, stop: () => server.running.stop() };
  },
};

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

function cellsOf({ cells }: Engine): Cells {
  return cells ?? expect.fail("this engine has cells");
}

describe.each(Object.entries(STORES))("%s", (_, start) => {
  let store: Awaited<ReturnType<typeof start>>;
  beforeAll(async () => {
    store = await start();
  }, 120_000);
  afterAll(() => store.stop());

  async function both(gate: Gate): Promise<Guarded> {
    const [watching, other] = [await store.open(gate), await store.open()];
    cleanups.push(
      () => watching[Symbol.asyncDispose](),
      () => other[Symbol.asyncDispose](),
    );
    return { watching, other };
  }

  test("a change after the caller's own read is told, also when the watch reads later than that", async () => {
    const gate = new Gate("read_cell");
    const { watching, other } = await both(gate);
    const seen: (string | null)[] = [];
    gate.hold();
    const unwatch = cellsOf(watching).watch("late", ({ value }) => seen.push(value));
    // What the caller knows, by a connection of its own.
    const before = await cellsOf(other).read("late");
    await cellsOf(other).write({ name: "late", operation: "o1", expected: before.version, value: "changed" });
    await until("the watch reads", () => gate.waiting > 0);
    gate.letGo();
    await until("the change is told", () => seen.at(-1) === "changed");
    unwatch();
  });

  test("a notification that is not ours ends nothing; a watch that cannot read says so, and tells of the change later", async () => {
    const gate = new Gate("read_cell");
    const { watching, other } = await both(gate);
    const warnings: string[] = [];
    watching.listen((event) => event.kind === "warning" && warnings.push(event.message));
    const seen: (string | null)[] = [];
    const unwatch = cellsOf(watching).watch("cut", ({ value }) => seen.push(value));
    await store.garbage();
    gate.hold();
    const before = await cellsOf(other).read("cut");
    await cellsOf(other).write({ name: "cut", operation: "o2", expected: before.version, value: "changed" });
    await until("it is said", () => warnings.some((text) => text.includes('"cut" could not be read')));
    gate.letGo();
    await until("the change is told", () => seen.at(-1) === "changed");
    unwatch();
  });
});
