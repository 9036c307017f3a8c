import type { Pool as MysqlPool } from "mysql2";
import { createPool } from "mysql2";
import { Pool as PgPool } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import * as maria from "../servers/mariadb.js";
import * as postgres from "../servers/postgres.js";
import { pause, until } from "../servers/process.js";
import { claimOf, states } from "./rig.js";

/** Claims and releases that go together in one call. */

type Store = {
  start(): Promise<void>;
  stop(): Promise<void>;
  /**
   * An engine on a pool of its own, with so many connections for calls, and the texts of the statements that it sends. With `statementMs`
   * the server ends a statement that takes longer.
   */
  open(connections: number, statementMs?: number): Promise<{ readonly engine: Engine; readonly sent: string[] }>;
  /** Its row is locked for as long as `work` takes. */
  lockedName(name: string, work: () => Promise<void>): Promise<void>;
  /** Ends the connections whose batch is under way. */
  cutBatches(): Promise<number>;
  /** How many connections our engines have. */
  connections(): Promise<number>;
  /** How many of those only listen. */
  readonly listening: number;
  /** A claim that this server refuses for good, or that it cannot keep. */
  readonly refused: object;
};

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

function onPostgres(): Store {
  let server: postgres.PostgresServer;
  // Open before it is needed: a statement that waits for a row does so for three seconds, and a busy machine takes as long to connect.
  let looking: PgPool;
  const ask = async (sql: string) => (await looking.query<Record<string, unknown>>(sql)).rows;
  return {
    listening: 1,
    // PostgreSQL's text cannot hold it.
    refused: { id: "an id with\u0000a zero in it" },
    async start() {
      server = await postgres.startPostgres();
      looking = postgres.poolOf(server.url, { max: 1, idleTimeoutMillis: 0 });
      await ask("SELECT 1");
    },
    async stop() {
      await looking?.end();
      await server?.running.stop();
    },
    async open(connections, statementMs = 0) {
      const options = `-c statement_timeout=${statementMs}`;
      const pool = new PgPool({ connectionString: server.url, max: connections, application_name: "batches", options });
      pool.on("error", () => {});
      const sent: string[] = [];
      pool.on("connect", (client) => {
        const send = client.query.bind(client) as (query: { text: string }) => unknown;
        client.query = ((query: { text: string }) => {
          sent.push(query.text);
          return send(query);
        }) as typeof client.query;
      });
      const engine = await postgresEngine(pool);
      cleanups.push(async () => {
        await engine[Symbol.asyncDispose]();
        await pool.end();
      });
      return { engine, sent };
    },
    async lockedName(name, work) {
      const pool = new PgPool({ connectionString: server.url, max: 1 });
      const client = await pool.connect();
      try {
        await client.query("BEGIN");
        await client.query("SELECT FROM holdfast.name WHERE name = $1 FOR UPDATE", [name]);
        await work();
      } finally {
        await client.query("ROLLBACK");
        client.release();
        await pool.end();
      }
    },
    cutBatches: async () =>
      (
        await ask(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%.batch(%' AND pid <> pg_backend_pid()",
        )
      ).length,
    connections: async () =>
      Number((await ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'batches'"))[0]?.count),
  };
}

function onMariadb(): Store {
  let server: maria.MariadbServer;
  let looking: ReturnType<typeof maria.poolOf>;
  const ask = async (sql: string) => (await looking.query(sql))[0] as Record<string, unknown>[];
  const others = "FROM information_schema.processlist WHERE id <> CONNECTION_ID()";
  return {
    listening: 2,
    // Longer than the column.
    refused: { id: "x".repeat(65) },
    async start() {
      server = await maria.startMariadb();
      looking = maria.poolOf(server.url, { connectionLimit: 1 });
      await ask("SELECT 1");
    },
    async stop() {
      await looking?.end();
      await server?.running.stop();
    },
    async open(connections, statementMs = 0) {
      const pool: MysqlPool = createPool({ uri: server.url, connectionLimit: connections + 2 });
      const sent: string[] = [];
      pool.on("connection", (connection) => {
        connection.query(`SET SESSION max_statement_time = ${statementMs / 1000}`);
        const send = connection.query.bind(connection) as (query: { sql: string }, ...rest: unknown[]) => unknown;
        connection.query = ((query: { sql: string }, ...rest: unknown[]) => {
          // The connection that listens asks again every two seconds.
          if (!query.sql.includes("listen")) sent.push(query.sql);
          return send(query, ...rest);
        }) as typeof connection.query;
      });
      const engine = await mysqlEngine(pool);
      cleanups.push(async () => {
        await engine[Symbol.asyncDispose]();
        await pool.promise().end();
      });
      return { engine, sent };
    },
    async lockedName(name, work) {
      const pool = createPool({ uri: server.url, connectionLimit: 1 }).promise();
      const connection = await pool.getConnection();
      try {
        await connection.query("START TRANSACTION");
        await connection.query("SELECT 1 FROM holdfast.name WHERE name = ? FOR UPDATE", [Buffer.from(name)]);
        await work();
      } finally {
        await connection.query("ROLLBACK");
        connection.release();
        await pool.end();
      }
    },
    async cutBatches() {
      // Of a procedure it shows the statement under way.
      const found = await ask(
        `SELECT id ${others} AND (info LIKE 'UPDATE%name SET%' OR info LIKE 'SELECT%name WHERE%FOR UPDATE')`,
      );
      for (const { id } of found) await ask(`KILL CONNECTION ${Number(id)}`);
      return found.length;
    },
    connections: async () => Number((await ask(`SELECT COUNT(*) AS count ${others}`))[0]?.count),
  };
}

const isBatch = (text: string): boolean => /\.`?batch`?\(/.test(text);

describe.each([
  ["PostgreSQL", onPostgres()],
  ["MariaDB", onMariadb()],
])("batches on %s", (_, store) => {
  beforeAll(() => store.start(), 120_000);
  afterAll(() => store.stop());

  /** Names that have a row already: only those are decided by the shortest way. */
  async function known(engine: Engine, names: readonly string[]): Promise<void> {
    for (const claim of names.map((name) => claimOf(name))) {
      expect((await engine.claim(claim)).kind).toBe("granted");
      expect(await engine.release({ ...claim, tombstone: "never" })).toBe("released");
    }
  }

  /** Connections for calls, as soon as the server has ended those of the test before. */
  const noMoreThan = (connections: number): Promise<void> =>
    until(`at most ${connections} are open`, async () => (await store.connections()) <= connections + store.listening);

  test("what is asked in one turn goes in one call, and one alone goes by itself", async () => {
    const { engine, sent } = await store.open(8);
    const names = Array.from({ length: 10 }, (__, n) => `turn ${n}`);
    sent.length = 0;
    await known(engine, names);
    expect(sent.filter(isBatch)).toEqual([]);
    const claims = names.map((name) => claimOf(name));
    sent.length = 0;
    const answers = await Promise.all(claims.map((claim) => engine.claim(claim)));
    expect(answers.map(({ kind }) => kind)).toEqual(names.map(() => "granted"));
    expect(sent).toHaveLength(1);
    expect(sent.filter(isBatch)).toHaveLength(1);
    const more = names.map((name) => claimOf(name));
    sent.length = 0;
    const [released, queued] = await Promise.all([
      Promise.all(claims.slice(0, 5).map((claim) => engine.release({ ...claim, tombstone: "never" }))),
      Promise.all(more.map((claim) => engine.claim(claim))),
    ]);
    expect(released).toEqual(Array.from({ length: 5 }, () => "released"));
    expect(queued.map(({ kind }) => kind)).toEqual([
      ...Array.from({ length: 5 }, () => "granted"),
      ...Array.from({ length: 5 }, () => "queued"),
    ]);
    expect(sent).toHaveLength(1);
  });

  test("what is asked while calls are under way goes together when one returns", async () => {
    const { engine, sent } = await store.open(8);
    const claims = Array.from({ length: 300 }, (__, n) => claimOf(`flood ${n}`));
    sent.length = 0;
    const answers = await Promise.all(claims.map((claim) => engine.claim(claim)));
    expect(answers.every(({ kind }) => kind === "granted")).toBe(true);
    expect(sent.length).toBeLessThan(20);
    await noMoreThan(8);
  });

  test("the same name several times: first come, first served", async () => {
    const { engine } = await store.open(8);
    const [a, b, c, d] = ["a", "b", "c", "d"].map(() => claimOf("often"));
    const other = claimOf("an other");
    const asked = [a, b, other, c, d].filter((claim) => claim !== undefined);
    const answers = await Promise.all(asked.map((claim) => engine.claim(claim)));
    expect(answers.map(({ kind }) => kind)).toEqual(["granted", "queued", "granted", "queued", "queued"]);
    expect(answers[1]).toMatchObject({ ahead: a?.id });
    expect(answers[3]).toMatchObject({ ahead: b?.id });
    // A run of hand-overs and the next claim in one call: the last of the run lets go of it.
    const e = claimOf("often");
    const ended = await Promise.all([
      engine.release({ ...claimOf("often"), ...a, tombstone: "never", to: b?.id ?? "" }),
      engine.release({ ...claimOf("often"), ...b, tombstone: "never", to: c?.id ?? "" }),
      engine.release({ ...claimOf("often"), ...c, tombstone: "never" }),
      engine.claim(e),
    ]);
    expect(ended).toMatchObject(["released", "released", "released", { kind: "queued", ahead: d?.id }]);
    expect(await states(engine, { name: "often" })).toMatchObject([
      { holders: [{ id: d?.id }], waiters: [{ id: e.id }] },
    ]);
  });

  test("one is refused for another capacity, and the others are granted", async () => {
    const { engine } = await store.open(8);
    expect(await engine.claim(claimOf("wide", { capacity: 5 }))).toMatchObject({ kind: "granted" });
    const answers = await Promise.all([
      engine.claim(claimOf("narrow 1")),
      engine.claim(claimOf("wide")),
      engine.claim(claimOf("narrow 2", { wait: false, data: 'ü "\n', exact: true, reserve: 3 })),
      engine.claim(claimOf("wide", { capacity: 5 })),
    ]);
    expect(answers).toMatchObject([
      { kind: "granted" },
      { kind: "mismatch", capacity: 5 },
      { kind: "granted", live: [expect.any(Number)] },
      { kind: "granted" },
    ]);
    expect(await states(engine, { name: "narrow 2" })).toMatchObject([{ holders: [{ data: 'ü "\n' }] }]);
  });

  test("an error is its own: the others of the batch are answered", async () => {
    const { engine } = await store.open(8);
    const good = [claimOf("good 1"), claimOf("good 2"), claimOf("good 3")];
    const asked = [...good.slice(0, 2), { ...claimOf("bad"), ...store.refused }, ...good.slice(2)];
    const outcomes = await Promise.allSettled(asked.map((claim) => engine.claim(claim)));
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected", "fulfilled"]);
    for (const claim of good) {
      expect(await states(engine, { name: claim.name })).toMatchObject([{ holders: [{ id: claim.id }] }]);
    }
  });

  test("two clients with the same names in opposite orders do not stop each other", async () => {
    const clients = [await store.open(8), await store.open(8)];
    const names = Array.from({ length: 20 }, (__, n) => `crossed ${n}`);
    const work = async ({ engine }: { engine: Engine }, own: readonly string[]): Promise<void> => {
      for (let round = 0; round < 15; round += 1) {
        // New names each time, and old ones: rows that have to be made, and rows that have to be locked.
        const claims = own.map((name, n) => claimOf(n % 2 ? name : `${name} ${round}`, { wait: false }));
        const answers = await Promise.all(claims.map((claim) => engine.claim(claim)));
        expect(answers.every(({ kind }) => kind === "granted" || kind === "busy")).toBe(true);
        await Promise.all(claims.map((claim) => engine.release({ ...claim, tombstone: "never" })));
      }
    };
    await Promise.all(clients.map((client, n) => work(client, n === 0 ? names : names.toReversed())));
  });

  test.each([1, 2, 3])("a pool of %i serves all, and has no more connections", async (connections) => {
    const { engine } = await store.open(connections);
    const claims = Array.from({ length: 100 }, (__, n) => claimOf(`pool ${connections} ${n % 70}`));
    const held = claimOf(`pool ${connections} held`);
    await engine.claim(held);
    const asked = Promise.all(claims.map((claim) => engine.claim(claim)));
    expect(await engine.renew([held])).toMatchObject([{ kind: "granted" }]);
    const answers = await asked;
    expect(answers.filter(({ kind }) => kind === "granted")).toHaveLength(70);
    expect(answers.filter(({ kind }) => kind === "queued")).toHaveLength(30);
    await noMoreThan(connections);
    const released = await Promise.all(claims.map((claim) => engine.release({ ...claim, tombstone: "never" })));
    expect(new Set(released)).toEqual(new Set(["released"]));
  });

  test("a row that somebody keeps locked delays its name alone", async () => {
    const { engine } = await store.open(8);
    await known(engine, ["locked", "free 1", "free 2"]);
    await store.lockedName("locked", async () => {
      const done: string[] = [];
      const asked = ["free 1", "locked", "free 2"].map(async (name) => {
        const answer = await engine.claim(claimOf(name));
        done.push(name);
        return answer;
      });
      await Promise.all([asked[0], asked[2]]);
      expect(done.toSorted()).toEqual(["free 1", "free 2"]);
      // Nothing of another name waits behind it either.
      expect(await engine.claim(claimOf("behind it"))).toMatchObject({ kind: "granted" });
      cleanups.push(async () => expect(await asked[1]).toMatchObject({ kind: "granted" }));
    });
  });

  test("heartbeats are answered while both lanes wait for locked rows", async () => {
    const { engine } = await store.open(4);
    await known(engine, ["stuck 1", "stuck 2"]);
    const held = claimOf("beating");
    await engine.claim(held);
    await store.lockedName("stuck 1", () =>
      store.lockedName("stuck 2", async () => {
        const stuck: Promise<unknown>[] = [];
        for (const name of ["stuck 1", "stuck 2"]) {
          stuck.push(engine.claim(claimOf(name)).catch(() => {}));
          await pause(0);
        }
        expect(await engine.renew([held])).toMatchObject([{ kind: "granted" }]);
        cleanups.push(() => Promise.all(stuck));
      }),
    );
  });

  test("a connection that is cut while a batch is under way leaves every outcome unknown, and sent again each is answered", async () => {
    const { engine } = await store.open(8);
    await known(engine, ["cut 1", "cut 2", "cut 3"]);
    const held = claimOf("cut 1");
    await engine.claim(held);
    const [two, three] = [claimOf("cut 2"), claimOf("cut 3")];
    const ask = () => [engine.release({ ...held, tombstone: "always" }), engine.claim(two), engine.claim(three)];
    await store.lockedName("cut 2", async () => {
      const outcomes = Promise.allSettled(ask());
      await until("the batch is under way and cut", async () => (await store.cutBatches()) > 0);
      for (const outcome of await outcomes) {
        expect(outcome.status).toBe("rejected");
        // Unknown, and not refused.
        expect(outcome).not.toHaveProperty("reason.code");
      }
    });
    const again = await Promise.all(ask());
    expect(again).toMatchObject(["released", { kind: "granted" }, { kind: "granted" }]);
    for (const claim of [two, three]) {
      expect(await states(engine, { name: claim.name })).toMatchObject([{ holders: [{ id: claim.id }], waiters: [] }]);
    }
  });

  describe("what is one step under one name", () => {
    /** Held by another client; `mine` are asked for together. */
    async function queued(name: string, statementMs?: number) {
      const [{ engine }, { engine: others }] = [await store.open(8, statementMs), await store.open(8)];
      const held = claimOf(name);
      await others.claim(held);
      const mine = [claimOf(name), claimOf(name), claimOf(name)] as const;
      const ask = (): Promise<unknown>[] => mine.map((claim) => engine.claim(claim));
      const inOrder = async (): Promise<void> =>
        expect(await states(others, { name })).toMatchObject([
          { holders: [{ id: held.id }], waiters: mine.map(({ id }) => ({ id })) },
        ]);
      return { engine, others, held, mine, ask, inOrder };
    }

    /** One after the other, each handed over inside the client. */
    const run = (engine: Engine, claims: readonly { readonly name: string; readonly id: string }[]) =>
      claims.map(({ name, id }, at) => {
        const next = claims[at + 1];
        return engine.release({ name, id, tombstone: "never", ...(next === undefined ? {} : { to: next.id }) });
      });

    test("claims one of which is known are answered as each of them stands, and again the same", async () => {
      const { engine, mine, ask, inOrder } = await queued("one known");
      expect(await engine.claim(mine[0])).not.toHaveProperty("ahead");
      for (const expected of [mine[0].id, undefined]) {
        const [first, second, third] = await Promise.all(ask());
        expect([first, second, third]).toMatchObject([{ kind: "queued" }, { kind: "queued" }, { kind: "queued" }]);
        // Told on arrival alone.
        expect((second as { ahead?: string }).ahead).toBe(expected);
        await inOrder();
      }
    });

    test("claims of which one has a tombstone: that one is gone, the others queue", async () => {
      const { engine, others, held, mine, ask } = await queued("one gone");
      await engine.release({ ...mine[1], tombstone: "always" });
      expect(await Promise.all(ask())).toMatchObject([{ kind: "queued" }, { kind: "gone" }, { kind: "queued" }]);
      expect(await states(others, { name: held.name })).toMatchObject([
        { holders: [{ id: held.id }], waiters: [{ id: mine[0].id }, { id: mine[2].id }] },
      ]);
    });

    test("a run of releases in which one was released by somebody else, and one hands over to another client", async () => {
      const { engine, others, held, mine, ask } = await queued("forced");
      await Promise.all(ask());
      const last = claimOf(held.name);
      await others.claim(last);
      await others.release({ ...held, tombstone: "never" });
      await others.release({ ...mine[1], tombstone: "always" });
      const granted = new Promise((resolve) => others.listen(resolve));
      expect(await Promise.all(run(engine, mine))).toEqual(["released", "revoked", "released"]);
      expect(await granted).toMatchObject({ kind: "granted", id: last.id });
      expect(await states(engine, { name: held.name })).toMatchObject([{ holders: [{ id: last.id }], waiters: [] }]);
    });

    test("a run of releases in which another client stands lets that one in, and tells it", async () => {
      const { engine, others, held, mine } = await queued("between");
      const between = claimOf(held.name);
      await engine.claim(mine[0]);
      await others.claim(between);
      await engine.claim(mine[1]);
      await others.release({ ...held, tombstone: "never" });
      const granted = new Promise((resolve) => others.listen(resolve));
      const released = [
        engine.release({ ...mine[0], tombstone: "never", to: mine[1].id }),
        engine.release({ ...mine[1], tombstone: "never", to: between.id }),
      ];
      expect(await Promise.all(released)).toEqual(["released", "released"]);
      expect(await granted).toMatchObject({ kind: "granted", id: between.id });
    });

    test("a run of releases whose first one holds more than the capacity, since that was lowered, leaves nothing taken", async () => {
      const { engine } = await store.open(8);
      const name = "lowered";
      const [large, next] = [{ ...claimOf(name), units: 2, capacity: 3 }, claimOf(name)];
      await engine.claim(large);
      await engine.setCapacity(name, 3, 1);
      expect(await engine.claim(next)).toMatchObject({ kind: "queued" });
      expect(await Promise.all(run(engine, [large, next]))).toEqual(["released", "released"]);
      expect(await engine.claim(claimOf(name))).toMatchObject({ kind: "granted" });
    });

    test("a run of releases that is cut leaves every outcome unknown, and sent again each is answered", async () => {
      const { engine, others, held, mine, ask } = await queued("cut run");
      await Promise.all(ask());
      await others.release({ ...held, tombstone: "never" });
      await store.lockedName(held.name, async () => {
        const outcomes = Promise.allSettled(run(engine, mine));
        await until("the batch is under way and cut", async () => (await store.cutBatches()) > 0);
        for (const outcome of await outcomes) expect(outcome.status).toBe("rejected");
      });
      expect(await Promise.all(run(engine, mine))).toEqual(["released", "released", "released"]);
      expect(await states(others, { name: held.name })).toEqual([]);
    });

    test.each(["a cut connection", "the server's time limit"])(
      "claims that %s ends, sent again, queue once and in order",
      async (end) => {
        const limit = end === "the server's time limit";
        const { held, ask, inOrder } = await queued(`ended by ${end}`, limit ? 150 : undefined);
        await store.lockedName(held.name, async () => {
          const outcomes = Promise.allSettled(ask());
          if (!limit) await until("the batch is under way and cut", async () => (await store.cutBatches()) > 0);
          for (const outcome of await outcomes) {
            expect(outcome.status).toBe("rejected");
            expect(outcome).not.toHaveProperty("reason.code");
          }
        });
        expect(await Promise.all(ask())).toMatchObject([{ kind: "queued" }, { kind: "queued" }, { kind: "queued" }]);
        await inOrder();
      },
    );
  });

  test("what was not sent yet when the engine is closed is not sent any more", async () => {
    const { engine, sent } = await store.open(1);
    await known(engine, ["late 1", "late 2"]);
    const first = engine.claim(claimOf("late 1"));
    await pause(0);
    sent.length = 0;
    const second = engine.claim(claimOf("late 2"));
    const closing = engine[Symbol.asyncDispose]();
    await expect(second).rejects.toMatchObject({ code: "HOLDFAST_CLOSED" });
    await Promise.allSettled([first, closing]);
    expect(sent.filter((text) => text.includes("claim"))).toEqual([]);
  });
});

describe("batches on MariaDB", () => {
  let server: maria.MariadbServer;
  beforeAll(async () => void (server = await maria.startMariadb()), 120_000);
  afterAll(() => server.running.stop());

  test("a setting that a batch needs is put back, also after an error", async () => {
    const pool = createPool({ uri: server.url, connectionLimit: 3 });
    pool.on("connection", (connection) => connection.query("SET SESSION innodb_lock_wait_timeout = 33"));
    const engine = await mysqlEngine(pool);
    cleanups.push(async () => {
      await engine[Symbol.asyncDispose]();
      await pool.promise().end();
    });
    await Promise.all([engine.claim(claimOf("kept 1")), engine.claim(claimOf("kept 2"))]);
    const refused = { ...claimOf("kept 3"), id: "x".repeat(65) };
    const outcomes = await Promise.allSettled([engine.claim(refused), engine.claim(claimOf("kept 4"))]);
    expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
    // The only one for calls: the two others listen.
    const [rows] = await pool.promise().query("SELECT @@innodb_lock_wait_timeout AS seconds");
    expect(rows).toEqual([{ seconds: 33 }]);
  });
});
