import { createServer, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineRefusedError, EngineUnavailableError, InvalidOptionError } from "../../src/core/errors.js";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import type { Locks } from "../../src/locks.js";
import * as maria from "../servers/mariadb.js";
import * as postgres from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { inSomeTries, states } from "./rig.js";

/** What passes by itself is asked again; what somebody has to mend is said at once, with what to do. */

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

async function locksOn(url: string): Promise<Locks> {
  const locks = await connect(url);
  cleanups.push(() => locks.close());
  return locks;
}

/** A hold is kept, and given back, although its server refuses every write for a while. */
async function outlasts(locks: Locks, start: () => Promise<unknown>, stop: () => Promise<unknown>, said: RegExp) {
  const hold = await locks.mutex("outlasts").acquire({ leaseMs: 60_000 });
  await start();
  const causes: string[] = [];
  locks.on("unavailable", ({ cause }) => causes.push(String(cause)));
  const released = hold.release();
  released.catch(() => {});
  try {
    await until("it was refused twice", () => causes.length >= 2);
  } finally {
    await stop();
  }
  for (const cause of causes) expect(cause).toMatch(said);
  await released;
  expect(await states(locks, { name: "outlasts" })).toEqual([]);
}

/** When it connects, or when it is used first. */
async function expectForeign(url: string): Promise<void> {
  const using = connect(url).then(async (locks) => {
    cleanups.push(() => locks.close());
    await locks.mutex("m").acquire({ waitMs: 10_000 });
  });
  await expect(using).rejects.toThrow(EngineRefusedError);
  await expect(using).rejects.toThrow(/tables of another program.*schema of their own/);
}

describe("PostgreSQL", () => {
  let server: postgres.PostgresServer;
  beforeAll(async () => {
    server = await postgres.startPostgres();
  }, 120_000);
  afterAll(() => server.running.stop());
  const run = (text: string) => postgres.query(server.url, text);

  test.each([
    ["53100", /disk is full/],
    ["25006", /only reads/],
    ["57014", /refused/],
  ])("a release that is refused with %s for a while is made in the end", async (code, said) => {
    const locks = await locksOn(`${server.url}?schema=outlasts`);
    const raise = `CREATE OR REPLACE FUNCTION outlasts.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '${code}'; END $$;
      CREATE TRIGGER refuse BEFORE UPDATE ON outlasts.name FOR EACH ROW EXECUTE FUNCTION outlasts.refuse()`;
    await outlasts(
      locks,
      () => run(raise),
      () => run("DROP TRIGGER refuse ON outlasts.name"),
      said,
    );
  });

  test("no connection left on the server is no refusal, and says what to raise", async () => {
    await run("CREATE ROLE crowd LOGIN CONNECTION LIMIT 0");
    const connecting = connect(server.url.replace("postgres@", "crowd@"));
    await expect(connecting).rejects.toThrow(EngineUnavailableError);
    await expect(connecting).rejects.toThrow(/max_connections/);
  });

  test("rights taken away and functions that are gone are refused at once, with advice", async () => {
    await locksOn(`${server.url}?schema=taken`);
    await run(`CREATE ROLE poor LOGIN; GRANT USAGE ON SCHEMA taken TO poor;
      GRANT ALL ON ALL TABLES IN SCHEMA taken TO poor; GRANT ALL ON ALL SEQUENCES IN SCHEMA taken TO poor`);
    const locks = await locksOn(`${server.url.replace("postgres@", "poor@")}?schema=taken`);
    await locks.mutex("m").using(() => {});
    await run("REVOKE ALL ON taken.name FROM poor");
    await expect(locks.mutex("m").acquire()).rejects.toThrow(EngineRefusedError);
    await run("GRANT ALL ON taken.name TO poor; ALTER FUNCTION taken.inspect RENAME TO elsewhere");
    await expect(states(locks)).rejects.toThrow(EngineRefusedError);
    await expect(states(locks)).rejects.toThrow(/Connect again/);
  });

  test.each(["migration", "store", "name"])(
    "a table of another program, %s, is refused, with advice",
    async (table) => {
      await run(`CREATE SCHEMA with_${table}`);
      await run(`CREATE TABLE with_${table}.${table} (id text, number text)`);
      await expectForeign(`${server.url}?schema=with_${table}`);
    },
  );

  test("one connection is enough of a pool, and is said to be few; when it is taken, the pool is named", async () => {
    const pool = postgres.poolOf(server.url, { max: 1, connectionTimeoutMillis: 0 });
    cleanups.push(() => pool.end());
    const engine = await inSomeTries(() => postgresEngine(pool, { callTimeoutMs: 1000 }));
    cleanups.push(() => engine[Symbol.asyncDispose]());
    const warning = await new Promise((resolve) => void engine.listen(resolve));
    expect(warning).toMatchObject({
      kind: "warning",
      message: expect.stringMatching(/pool has one connection.*2 at least/),
    });
    const locks = await connect(engine);
    await locks.mutex("one").using(() => locks.mutex("two").using(() => {}));
    const taken = await pool.connect();
    await expect(engine.renew([{ name: "n", id: "i" }])).rejects.toThrow(/the pool had no free connection/);
    taken.release();
    expect(await engine.renew([{ name: "n", id: "i" }])).toEqual([{ kind: "gone" }]);
  });
});

describe("MariaDB", () => {
  let server: maria.MariadbServer;
  beforeAll(async () => {
    server = await maria.startMariadb();
  }, 120_000);
  afterAll(() => server.running.stop());
  const run = (text: string) => maria.query(server.url, text);

  test.each([
    [1114, /disk is full/],
    [1290, /only reads/],
    [3, /refused/],
  ])("a release that is refused with %i for a while is made in the end", async (number, said) => {
    const locks = await locksOn(`${server.url}?schema=outlasts`);
    const signal = `SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = ${number}, MESSAGE_TEXT = 'refused'`;
    await outlasts(
      locks,
      () => run(`CREATE TRIGGER outlasts.refuse BEFORE UPDATE ON outlasts.name FOR EACH ROW ${signal}`),
      () => run("DROP TRIGGER outlasts.refuse"),
      said,
    );
  });

  test("no connection left on the server is no refusal, and says what to raise", async () => {
    await run("CREATE USER crowd; GRANT ALL ON *.* TO crowd WITH MAX_USER_CONNECTIONS 1");
    const connecting = connect(server.url.replace("root@", "crowd@"));
    await expect(connecting).rejects.toThrow(EngineUnavailableError);
    await expect(connecting).rejects.toThrow(/max_user_connections/);
  });

  test("rights taken away and procedures that are gone are refused, with advice", async () => {
    await locksOn(`${server.url}?schema=taken`);
    await run("CREATE USER poor; GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON taken.* TO poor");
    const locks = await locksOn(`${server.url.replace("root@", "poor@")}?schema=taken`);
    await locks.mutex("m").using(() => {});
    await run("DROP PROCEDURE taken.inspect");
    await expect(states(locks)).rejects.toThrow(EngineRefusedError);
    await expect(states(locks)).rejects.toThrow(/Connect again/);
    await run("REVOKE EXECUTE ON taken.* FROM poor");
    await expect(states(locks)).rejects.toThrow(/rights/);
  });

  test.each(["migration", "store", "name"])(
    "a table of another program, %s, is refused, with advice",
    async (table) => {
      await run(`CREATE DATABASE with_${table}`);
      await run(`CREATE TABLE with_${table}.${table} (id varchar(9), number varchar(9))`);
      await expectForeign(`${server.url}?schema=with_${table}`);
    },
  );

  test("a procedure that is gone for a moment, because it is being made anew, is waited for", async () => {
    const locks = await locksOn(`${server.url}?schema=anew`);
    const [row] = await run("SHOW CREATE PROCEDURE anew.read_cell");
    await run("DROP PROCEDURE anew.read_cell");
    const reading = locks.counter("anew").get();
    reading.catch(() => {});
    await run(`USE anew; ${String(row?.["Create Procedure"])}`);
    expect(await reading).toBe(0);
  });

  test.each([1, 2])("a pool of %i is refused at once, and says how many it needs; polling works", async (size) => {
    const pool = maria.poolOf(server.url, { connectionLimit: size });
    cleanups.push(() => pool.end());
    const opening = mysqlEngine(pool, { schema: "small" });
    await expect(opening).rejects.toThrow(InvalidOptionError);
    await expect(opening).rejects.toThrow(new RegExp(`pool.*connectionLimit is ${size}.*need 3`));
    const engine = await mysqlEngine(pool, { schema: "small", wake: "poll" });
    const locks = await connect(engine);
    await locks.mutex("small").using(() => {});
    await locks.close();
    await engine[Symbol.asyncDispose]();
  });

  test("engines that share a pool are counted together, and no longer when they are closed", async () => {
    const pool = maria.poolOf(server.url, { connectionLimit: 3 });
    cleanups.push(() => pool.end());
    const first = await mysqlEngine(pool, { schema: "small" });
    await expect(mysqlEngine(pool, { schema: "small" })).rejects.toThrow(/connectionLimit is 3.*2 engines.*need 5/);
    await first[Symbol.asyncDispose]();
    const second = await mysqlEngine(pool, { schema: "small" });
    await second[Symbol.asyncDispose]();
  });
});

/** Servers that begin to speak and stop: in the middle of a message, or after a length that never comes. */
test.each([
  ["postgres", "52000000080000"],
  ["postgres", "527fffffff00000000"],
  ["postgres", "52ffffffff00"],
  ["postgres", "5200000008000000005a0000000549".slice(0, 24)],
  ["postgres", Buffer.from("HTTP/1.1 400 Bad Request").toString("hex")],
  ["mysql", "4a0000000a"],
  ["mysql", "ffffff000a"],
  ["mysql", "000000000a"],
  ["mysql", Buffer.from("HTTP/1.1 400 Bad Request").toString("hex")],
])("a server of %s that says %s and no more is away, not waited for", async (kind, words) => {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    const speak = (): void => void socket.write(Buffer.from(words, "hex"));
    if (kind === "mysql") speak();
    else socket.once("data", speak);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as { port: number };
  const connecting = connect(`${kind}://someone@127.0.0.1:${port}/x`, { callTimeoutMs: 300 });
  await expect(connecting).rejects.toThrow(EngineUnavailableError);
  await until("every connection is given up", () => sockets.every((socket) => socket.destroyed));
});
