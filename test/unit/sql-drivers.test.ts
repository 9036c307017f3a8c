import { EventEmitter, once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { InvalidOptionError } from "../../src/core/errors.js";
import type { MysqlConnection, MysqlPool, MysqlQuery } from "../../src/engines/mysql/driver.js";
import { askingStream } from "../../src/engines/mysql/drivers/asking-stream.js";
import { isMariadbPool, mysqlPoolOf } from "../../src/engines/mysql/drivers/mariadb.js";
import { Mysql2Driver } from "../../src/engines/mysql/drivers/mysql2.js";
import type { PgPool, PgQuery } from "../../src/engines/postgres/driver.js";
import { askingClient } from "../../src/engines/postgres/drivers/asking-client.js";
import { PgClientDriver } from "../../src/engines/postgres/drivers/pg-client.js";
import { PgPoolDriver } from "../../src/engines/postgres/drivers/pg-pool.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";

/** Which connections of a pool are used, given back or given up, and what is told of it. Each answer comes when the test says so. */

const LIMIT_MS = 1000;
const REFUSED = Object.assign(new Error("refused"), { code: "42501", severity: "ERROR" });
const ENDED = Object.assign(new Error("ended"), { code: "57P01", severity: "FATAL" });

type Answer = { resolve(result: unknown): void; reject(cause: Error): void };

/** A client of pg, of a pool or alone. */
class FakePgClient extends EventEmitter {
  readonly done: string[] = [];
  readonly answers: Answer[] = [];
  /** Answers at once what nobody waits for. */
  answersNow = true;
  status = "I";
  processID: number | null = 7;
  connecting: Promise<unknown> = Promise.resolve();
  readonly connection = { stream: { destroyed: false, destroy: () => this.done.push("cut") } };
  giveBack = (_destroy: boolean): void => {};

  query({ text }: PgQuery): Promise<never> {
    this.done.push(text);
    return new Promise((resolve, reject) => {
      if (this.answersNow) resolve({ rows: [] } as never);
      else this.answers.push({ resolve: resolve, reject });
    });
  }
  connect(): Promise<unknown> {
    this.done.push("connect");
    return this.connecting;
  }
  async end(): Promise<void> {
    this.done.push("end");
  }
  getTransactionStatus(): string {
    return this.status;
  }
  release(destroy = false): void {
    this.done.push(destroy ? "destroyed" : "released");
    this.giveBack(destroy);
  }
  /** Listeners for errors beyond the one that is there for good. */
  get ownListeners(): number {
    return this.listenerCount("error") - 1;
  }
}

/** A pool of pg that lends what is idle, the last one first, and makes new ones until it is full. */
class FakePgPool extends EventEmitter {
  readonly made: FakePgClient[] = [];
  readonly idle: FakePgClient[] = [];
  readonly waiting: ((client: FakePgClient) => void)[] = [];
  connects = 0;
  options: { max?: number } = { max: 3 };
  Client?: unknown;
  prepare = (_client: FakePgClient): void => {};

  get totalCount(): number {
    return this.made.length;
  }
  connect(): Promise<FakePgClient> {
    this.connects += 1;
    const free = this.idle.pop();
    if (free !== undefined) return Promise.resolve(free);
    if (this.made.length < (this.options.max ?? 10)) return Promise.resolve(this.make());
    return new Promise((resolve) => this.waiting.push(resolve));
  }
  make(): FakePgClient {
    const client = new FakePgClient();
    client.giveBack = (destroy) => {
      if (destroy) this.made.splice(this.made.indexOf(client), 1);
      const next = this.waiting.shift();
      if (!destroy && next === undefined) this.idle.push(client);
      else next?.(destroy ? this.make() : client);
    };
    this.made.push(client);
    this.emit("connect", client);
    this.prepare(client);
    return client;
  }
}

function pgPool(keeps: boolean) {
  const clock = new FakeClock();
  const pool = new FakePgPool();
  let unanswered = 0;
  const driver = new PgPoolDriver({
    pool: pool as unknown as PgPool,
    clock,
    limitMs: LIMIT_MS,
    keeps,
    unanswered: () => (unanswered += 1),
  });
  return { clock, pool, driver, unanswered: () => unanswered };
}

describe("a pool of PostgreSQL's", () => {
  test("one that is shared gets each connection back after each call, and keeps no listener", async () => {
    const { pool, driver } = pgPool(false);
    for (let n = 0; n < 3; n += 1) await driver.run({ text: "one" });
    const [client] = pool.made as [FakePgClient];
    expect(client.done).toEqual(["one", "released", "one", "released", "one", "released"]);
    expect([pool.made.length, client.ownListeners]).toEqual([1, 0]);
    expect(driver.connections).toBe(3);
    pool.options = {};
    expect(driver.connections).toBe(10);
  });

  test("of our own one connection stays in hand until the end, unless somebody waits for it", async () => {
    const { pool, driver } = pgPool(true);
    for (let n = 0; n < 3; n += 1) await driver.run({ text: "one" });
    const [client] = pool.made as [FakePgClient];
    expect([pool.connects, client.done]).toEqual([1, ["one", "one", "one"]]);
    await Promise.all(["a", "b", "c", "d", "e"].map((text) => driver.run({ text })));
    expect(pool.made).toHaveLength(3);
    expect(pool.idle).toHaveLength(2);
    pool.options = { max: 1 };
    driver.close();
    expect(pool.idle).toHaveLength(3);
    // After the end nothing stays.
    await driver.run({ text: "late" });
    expect(pool.idle).toHaveLength(3);
    const small = pgPool(true);
    small.pool.options = { max: 1 };
    await Promise.all(["a", "b", "c"].map((text) => small.driver.run({ text })));
    expect(small.pool.made).toHaveLength(1);
  });

  test("a connection in hand that breaks leaves the pool, and one that broke while it was lent is given up once", async () => {
    const { pool, driver } = pgPool(true);
    await driver.run({ text: "one" });
    const [client] = pool.made as [FakePgClient];
    client.emit("error", new Error("cut"));
    client.emit("error", new Error("again"));
    expect(client.done).toEqual(["one", "destroyed"]);
    await driver.run({ text: "two" });
    expect(pool.connects).toBe(2);
  });

  test.each([
    ["refused by the server goes back", REFUSED, "released"],
    ["ended by the server leaves the pool", ENDED, "destroyed"],
    ["cut leaves the pool", new Error("cut"), "destroyed"],
  ])("a call that is %s", async (_, cause, end) => {
    const { clock, pool, driver, unanswered } = pgPool(false);
    pool.prepare = (client) => void (client.answersNow = false);
    await clock.advance(10 * LIMIT_MS);
    const failed = expect(driver.run({ text: "one" })).rejects.toBe(cause);
    await settle();
    const [client] = [...pool.made] as [FakePgClient];
    client.answers[0]?.reject(cause);
    await failed;
    expect([client.done, unanswered()]).toEqual([["one", end], 0]);
  });

  test("a call that is answered within somebody's transaction is not answered", async () => {
    const { pool, driver } = pgPool(true);
    pool.prepare = (client) => void (client.answersNow = false);
    const failed = expect(driver.run({ text: "one" })).rejects.toThrow(/middle of a transaction/);
    await settle();
    const [client] = [...pool.made] as [FakePgClient];
    client.status = "T";
    client.answers[0]?.resolve({ rows: [] });
    await failed;
    expect(client.done).toEqual(["one", "destroyed"]);
  });

  test("a connection that was returned within a transaction is rolled back and used, or leaves the pool", async () => {
    const { pool, driver } = pgPool(false);
    pool.prepare = (client) => {
      client.status = "T";
      const query = client.query.bind(client);
      client.query = (one) => {
        if (one.text === "ROLLBACK") client.status = "I";
        return query(one);
      };
    };
    await driver.run({ text: "one" });
    expect(pool.made[0]?.done).toEqual(["ROLLBACK", "one", "released"]);
    const stuck = pgPool(false);
    const all: FakePgClient[] = [];
    stuck.pool.prepare = (client) => void (all.push(client), (client.status = "T"));
    await expect(stuck.driver.run({ text: "one" })).rejects.toThrow(/middle of a transaction/);
    expect(all.map(({ done }) => done)).toEqual(all.map(() => ["ROLLBACK", "destroyed", "cut"]));
    // One more than there were.
    expect(all).toHaveLength(2);
  });

  test("after a call that was not answered none is made on a connection that has not answered since, and it is told", async () => {
    const { clock, pool, driver, unanswered } = pgPool(true);
    await Promise.all(["a", "b", "c"].map((text) => driver.run({ text })));
    const old = [...pool.made];
    for (const client of old) client.answersNow = false;
    const silent = expect(driver.run({ text: "one" })).rejects.toThrow(/no answer within/);
    await clock.advance(LIMIT_MS);
    await silent;
    expect(unanswered()).toBe(1);
    const asked = pool.connects;
    await driver.run({ text: "two" });
    // The two that were idle, and a new one in their place.
    expect([pool.connects - asked, pool.made.length]).toEqual([3, 1]);
    expect(old.flatMap(({ done }) => done.filter((text) => text === "two"))).toEqual([]);
    expect(old.map(({ done }) => done.includes("destroyed"))).toEqual([true, true, true]);
    // What is made since is as good as before.
    const connects = pool.connects;
    await driver.run({ text: "three" });
    expect(pool.connects).toBe(connects);
    driver.close();
  });

  test("the connection in hand is given up too when another was silent meanwhile", async () => {
    const { clock, pool, driver } = pgPool(true);
    pool.prepare = (client) => void (client.answersNow = false);
    const silent = expect(driver.run({ text: "lost" })).rejects.toThrow(/no answer within/);
    const answered = driver.run({ text: "answered" });
    await settle();
    const [, kept] = [...pool.made] as [FakePgClient, FakePgClient];
    kept.answers[0]?.resolve({ rows: [] });
    await answered;
    await clock.advance(LIMIT_MS);
    await silent;
    pool.prepare = () => {};
    void driver.run({ text: "next" });
    await settle();
    expect(kept.done).toEqual(["answered", "destroyed", "cut"]);
    expect(pool.made.map(({ done }) => done)).toEqual([["next"]]);
    driver.close();
  });

  test("where every connection is suspect one more than there were is given up, and then one is used", async () => {
    const { clock, pool, driver } = pgPool(false);
    // A pool that tells nothing: whoever has not answered a call of ours is suspect.
    pool.emit = () => false;
    await Promise.all(["a", "b"].map((text) => driver.run({ text })));
    for (const client of pool.made) client.answersNow = false;
    const silent = expect(driver.run({ text: "one" })).rejects.toThrow(/no answer within/);
    await clock.advance(LIMIT_MS);
    await silent;
    const all = [...pool.made];
    pool.prepare = (client) => void all.push(client);
    await driver.run({ text: "two" });
    expect(all.map(({ done }) => done.filter((text) => text !== "a" && text !== "b").slice(-2))).toEqual([
      ["destroyed", "cut"],
      ["destroyed", "cut"],
      ["two", "released"],
    ]);
  });

  test("a connection that answers after another was silent is used again", async () => {
    const { clock, pool, driver, unanswered } = pgPool(false);
    pool.prepare = (client) => void (client.answersNow = false);
    const silent = expect(driver.run({ text: "lost" })).rejects.toThrow(/no answer within/);
    await clock.advance(LIMIT_MS / 2);
    const answered = driver.run({ text: "slow" });
    await clock.advance(LIMIT_MS / 2);
    await silent;
    const [slow] = pool.made as [FakePgClient];
    slow.answers[0]?.resolve({ rows: [] });
    await answered;
    slow.answersNow = true;
    pool.prepare = () => {};
    await driver.run({ text: "next" });
    expect([slow.done, unanswered()]).toEqual([["slow", "released", "next", "released"], 1]);
  });

  test("a refusal that comes late from a server that answers others is no silence, and neither is our own end", async () => {
    const { clock, pool, driver, unanswered } = pgPool(false);
    pool.prepare = (client) => void (client.answersNow = false);
    const refused = expect(driver.run({ text: "refused" })).rejects.toBe(REFUSED);
    const under = expect(driver.run({ text: "under way" })).rejects.toThrow();
    await settle();
    const [first] = pool.made as [FakePgClient];
    clock.stall(LIMIT_MS);
    first.answers[0]?.reject(REFUSED);
    await refused;
    expect(first.done).toEqual(["refused", "released"]);
    driver.close();
    await under;
    expect(unanswered()).toBe(0);
  });

  test("an error on a connection that is lent takes nothing from the one in hand", async () => {
    const { pool, driver } = pgPool(true);
    pool.prepare = (client) => void (client.answersNow = false);
    const both = ["a", "b"].map((text) => driver.run({ text }));
    await settle();
    const [lent, kept] = [...pool.made] as [FakePgClient, FakePgClient];
    kept.answers[0]?.resolve({ rows: [] });
    await both[1];
    const failed = expect(both[0]).rejects.toThrow("cut");
    lent.emit("error", new Error("cut"));
    lent.answers[0]?.reject(new Error("cut"));
    await failed;
    expect([lent.done, kept.done]).toEqual([["a", "destroyed"], ["b"]]);
  });

  test("engines on one pool know of each other's silence, and listen to it once", async () => {
    const { clock, pool, driver } = pgPool(false);
    const parts = { pool: pool as unknown as PgPool, clock, limitMs: LIMIT_MS, keeps: false, unanswered: () => {} };
    const other = new PgPoolDriver(parts);
    expect(pool.listenerCount("connect")).toBe(1);
    await Promise.all(["a", "b"].map((text) => driver.run({ text })));
    const [first] = pool.made as [FakePgClient];
    for (const client of pool.made) client.answersNow = false;
    const silent = expect(driver.run({ text: "one" })).rejects.toThrow(/no answer within/);
    await clock.advance(LIMIT_MS);
    await silent;
    await other.run({ text: "two" });
    expect(first.done).toEqual(["a", "released", "destroyed", "cut"]);
  });

  test("a pool that has none free says so after the limit, and what comes late goes back unused", async () => {
    const { clock, pool, driver, unanswered } = pgPool(false);
    pool.options = { max: 0 };
    const failed = expect(driver.run({ text: "one" })).rejects.toThrow(/no free connection .* within 1000 ms/);
    await clock.advance(LIMIT_MS);
    await failed;
    const late = new FakePgClient();
    pool.waiting[0]?.(late);
    await settle();
    expect([late.done, unanswered()]).toEqual([["released"], 0]);
    const closed = expect(driver.run({ text: "two" })).rejects.toThrow(/no answer/);
    await settle();
    driver.close();
    await closed;
    expect(unanswered()).toBe(0);
  });

  test("no connection is ever without a listener for errors", async () => {
    const { pool, driver } = pgPool(false);
    const strange = new FakePgClient();
    pool.emit("acquire", strange);
    pool.emit("acquire", strange);
    expect(strange.listenerCount("error")).toBe(1);
    const made = new FakePgClient();
    pool.emit("connect", made);
    expect(made.listenerCount("error")).toBe(1);
    await driver.run({ text: "one" });
    expect(pool.made[0]?.listenerCount("error")).toBe(1);
    const unseen = new FakePgClient();
    pool.connect = async () => unseen;
    await driver.run({ text: "one" });
    expect(unseen.listenerCount("error")).toBe(1);
  });

  describe("the connection that listens", () => {
    function listening(prepare: (client: FakePgClient) => void = () => {}) {
      const made = pgPool(false);
      const clients: FakePgClient[] = [];
      made.pool.Client = class extends FakePgClient {
        constructor(readonly given: unknown) {
          super();
          clients.push(this);
          prepare(this);
        }
      };
      const told: unknown[] = [];
      const listen = () =>
        made.driver.listen(
          (channel, payload) => told.push([channel, payload]),
          () => told.push("end"),
        );
      return { ...made, clients, told, listen };
    }

    test("is one of its own; it tells what it hears, and its end once", async () => {
      const { pool, clients, told, listen } = listening();
      const connection = await listen();
      const [client] = clients as [FakePgClient & { given: unknown }];
      expect([client.given, connection?.processId, pool.connects]).toEqual([pool.options, 7, 0]);
      await connection?.run({ text: "LISTEN a" });
      client.emit("notification", { channel: "a", payload: "p" });
      client.emit("notification", { channel: "a" });
      client.emit("error", new Error("cut"));
      client.emit("end");
      client.emit("notification", { channel: "a", payload: "late" });
      connection?.close();
      expect(told).toEqual([["a", "p"], ["a", ""], "end"]);
      expect(client.done).toEqual(["connect", "LISTEN a", "end"]);
      expect(["notification", "end"].map((event) => client.listenerCount(event))).toEqual([0, 0]);
      expect(client.listenerCount("error")).toBe(1);
    });

    test.each(["error", "end"])("tells its end by the event %s alone", async (event) => {
      const { clients, told, listen } = listening();
      await listen();
      clients[0]?.emit(event, new Error("cut"));
      expect([told, clients[0]?.done]).toEqual([["end"], ["connect", "end"]]);
    });

    test("that is given up says no more; what is under way on it fails at once", async () => {
      const { clients, told, listen } = listening((client) => void (client.answersNow = false));
      const connection = await listen();
      const under = expect(connection?.run({ text: "LISTEN a" })).rejects.toThrow();
      await settle();
      connection?.close();
      await under;
      clients[0]?.emit("end");
      expect([told, clients[0]?.done]).toEqual([[], ["connect", "LISTEN a", "end"]]);
    });

    test("that cannot be made, or is silent while it is made, is cut and leaves nothing behind", async () => {
      for (const connecting of [Promise.reject(new Error("refused")), new Promise(() => {})]) {
        connecting.catch(() => {});
        const { clock, clients, told, listen } = listening((client) => void (client.connecting = connecting));
        const failed = expect(listen()).rejects.toThrow(/refused|no answer within/);
        await clock.advance(LIMIT_MS);
        await failed;
        expect([told, clients[0]?.done]).toEqual([[], ["connect", "cut", "end"]]);
      }
      const none = pgPool(false);
      expect(
        await none.driver.listen(
          () => {},
          () => {},
        ),
      ).toBeNull();
    });
  });
});

test("a single connection of PostgreSQL's stays open, and listens on itself until it ends", async () => {
  const [client, clock, told] = [new FakePgClient(), new FakeClock(), [] as unknown[]];
  const driver = new PgClientDriver(client, clock, LIMIT_MS, () => told.push("unanswered"));
  expect([driver.connections, client.listenerCount("error")]).toEqual([1, 1]);
  const listen = () =>
    driver.listen(
      (channel) => told.push(channel),
      () => told.push("end"),
    );
  const connection = await listen();
  client.emit("notification", { channel: "a" });
  connection?.close();
  client.emit("notification", { channel: "b" });
  await driver.run({ text: "one" });
  expect([told, client.done]).toEqual([["a"], ["one"]]);
  client.answersNow = false;
  const silent = expect(driver.run({ text: "two" })).rejects.toThrow(/no answer within/);
  await clock.advance(LIMIT_MS);
  await silent;
  expect(told).toEqual(["a", "unanswered"]);
  client.emit("end");
  await expect(listen()).rejects.toThrow(/does not connect again/);
  const under = expect(driver.run({ text: "three" })).rejects.toThrow();
  driver.close();
  await under;
  expect([told, client.done]).toEqual([
    ["a", "unanswered"],
    ["one", "two"],
  ]);
});

test("a client of pg that asks who it is connects with the answer, and not at all where it was given up", async () => {
  class Client extends FakePgClient {
    user: string | undefined = "url";
    password: string | null = null;
    readonly connectionParameters = { user: "url" as string | undefined, password: null as string | null };
  }
  let credentials: { username?: string; password: string } | Error = { username: "u", password: "p" };
  const Asking = askingClient(Client, async () => {
    if (credentials instanceof Error) throw credentials;
    return credentials;
  }) as unknown as new () => Client & { connect(callback?: (...args: unknown[]) => void): Promise<unknown> };
  const first = new Asking();
  await first.connect();
  expect([first.user, first.password, first.done]).toEqual(["u", "p", ["connect"]]);
  expect(first.connectionParameters).toEqual({ user: "u", password: "p" });
  credentials = { password: "q" };
  const called = new Asking();
  const told: unknown[][] = [];
  await called.connect((...args) => told.push(args));
  expect([called.user, called.password, told]).toEqual(["url", "q", [[null, called]]]);
  const given = new Asking();
  given.connection.stream.destroyed = true;
  await expect(given.connect()).rejects.toThrow("given up");
  expect(given.done).toEqual([]);
  const failure = (credentials = new Error("no credentials"));
  await new Asking().connect((...args) => told.push(args));
  expect(told.at(-1)).toEqual([failure]);
  await expect(new Asking().connect()).rejects.toBe(failure);
});

test("a connection of mysql2 that asks who it is connects when it knows, and not at all where it was given up", async () => {
  const accepted: Socket[] = [];
  const server = createServer((socket) => void accepted.push(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  type Credentials = { username?: string; password: string };
  const asked: Asked[] = [];
  type Asked = { resolve(credentials: Credentials): void; reject(cause: Error): void };
  const ask = () => new Promise<Credentials>((resolve, reject) => asked.push({ resolve, reject }));
  const stream = askingStream({ host: "127.0.0.1", port }, ask);
  const config = { user: "url", password: "url" };
  const first = stream({ config });
  await settle();
  expect(first.connecting).toBe(false);
  // What the library sets for sockets of its own.
  const set: unknown[] = [];
  first.setKeepAlive = (...args) => (set.push(args), first);
  asked[0]?.resolve({ username: "u", password: "p" });
  await once(first, "connect");
  expect([config, set]).toEqual([{ user: "u", password: "p" }, [[true]]]);
  asked.length = 0;
  const second = stream({ config });
  asked[0]?.resolve({ password: "q" });
  await once(second, "connect");
  expect(config).toEqual({ user: "u", password: "q" });
  const given = stream({ config });
  given.destroy();
  asked[1]?.resolve({ username: "late", password: "late" });
  await settle();
  expect([given.connecting, config]).toEqual([false, { user: "u", password: "q" }]);
  const refused = stream({ config });
  const failed = once(refused, "error");
  asked[2]?.reject(new Error("no credentials"));
  expect(await failed).toEqual([new Error("no credentials")]);
  for (const socket of [first, second, ...accepted]) socket.destroy();
  server.close();
});

/** A connection of mysql2. */
class FakeMysqlConnection extends EventEmitter {
  readonly done: string[] = [];
  readonly queries: MysqlQuery[] = [];
  answer: (query: MysqlQuery) => unknown = () => [];
  readonly stream = { destroy: () => this.done.push("cut") };
  giveBack = (_destroy: boolean): void => {};
  releasing: unknown = undefined;

  query(query: MysqlQuery, done: (error: Error | null, result: unknown) => void): void {
    this.done.push(query.sql);
    this.queries.push(query);
    const answer = this.answer(query);
    if (answer === undefined) return;
    queueMicrotask(() => (answer instanceof Error ? done(answer, undefined) : done(null, answer)));
  }
  release(): unknown {
    this.done.push("released");
    this.giveBack(false);
    return this.releasing;
  }
  destroy(): void {
    this.done.push("destroyed");
    this.giveBack(true);
  }
}

class FakeMysqlPool extends EventEmitter implements MysqlPool {
  readonly made: FakeMysqlConnection[] = [];
  readonly idle: FakeMysqlConnection[] = [];
  config: { connectionLimit?: number } = { connectionLimit: 5 };
  fails: Error | null = null;
  prepare = (_connection: FakeMysqlConnection): void => {};
  readonly waiting: ((connection: FakeMysqlConnection) => void)[] = [];
  full = false;

  getConnection(done: (error: Error | null, connection: MysqlConnection) => void): void {
    if (this.full) return void this.waiting.push((connection) => done(null, connection));
    queueMicrotask(() => {
      if (this.fails !== null) return done(this.fails, undefined as never);
      done(null, this.idle.pop() ?? this.#make());
    });
  }
  #make(): FakeMysqlConnection {
    const connection = new FakeMysqlConnection();
    connection.giveBack = (destroy) => void (destroy || this.idle.push(connection));
    this.made.push(connection);
    this.emit("connection", connection);
    this.prepare(connection);
    return connection;
  }
}

function mysqlPool() {
  const [clock, pool] = [new FakeClock(), new FakeMysqlPool()];
  let unanswered = 0;
  const driver = new Mysql2Driver({ pool, clock, limitMs: LIMIT_MS, unanswered: () => (unanswered += 1) });
  return { clock, pool, driver, unanswered: () => unanswered };
}

const mysqlError = (errno: number, over: object = {}): Error =>
  Object.assign(new Error(`error ${errno}`), { errno, sqlState: "HY000", ...over });

describe("a pool of MySQL's", () => {
  test("gets each connection back after each call; a read leaves no transaction open", async () => {
    const { pool, driver } = mysqlPool();
    pool.prepare = (connection) => void (connection.answer = () => [{ a: 1 }]);
    expect(await driver.run("SELECT 1", [2])).toEqual([[{ a: 1 }]]);
    expect(await driver.read("SELECT 2")).toEqual([[{ a: 1 }]]);
    const commit = "COMMIT AND NO CHAIN NO RELEASE";
    expect(pool.made.map(({ done }) => done)).toEqual([
      ["SELECT 1", "released", commit, "SELECT 2", commit, "released"],
    ]);
    // Whatever the pool was told.
    const plain = { rowsAsArray: false, nestTables: false, namedPlaceholders: false, typeCast: true };
    expect(pool.made[0]?.queries[0]).toEqual({ sql: "SELECT 1", values: [2], ...plain });
    expect(pool.made[0]?.queries[2]).toEqual({ sql: "SELECT 2", ...plain });
  });

  test("no connection is ever without a listener for errors", () => {
    const { pool } = mysqlPool();
    const made = new FakeMysqlConnection();
    pool.emit("connection", made);
    expect(made.listenerCount("error")).toBe(1);
  });

  test("what is changed is committed where a statement is no transaction by itself", async () => {
    const { pool, driver } = mysqlPool();
    let serverStatus: number | undefined = 2;
    const changed = { affectedRows: 1, insertId: 9 };
    pool.prepare = (connection) => {
      connection.answer = () => ({ ...changed, ...(serverStatus === undefined ? {} : { serverStatus }) });
    };
    expect(await driver.change("UPDATE", [])).toEqual(changed);
    serverStatus = undefined;
    expect(await driver.change("UPDATE", [])).toEqual(changed);
    serverStatus = 3;
    expect(await driver.change("UPDATE", [])).toEqual(changed);
    expect(pool.made[0]?.done).toEqual([
      ...["UPDATE", "released", "UPDATE", "released"],
      ...["UPDATE", "COMMIT AND NO CHAIN NO RELEASE", "released"],
    ]);
  });

  test.each([
    ["refused by the server goes back", mysqlError(1142), ["released"]],
    ["cut leaves the pool", new Error("cut"), ["destroyed", "cut"]],
    ["ended by the server leaves the pool", mysqlError(1053, { fatal: true }), ["destroyed", "cut"]],
    ["interrupted leaves the pool, with what it left open", mysqlError(1317), ["destroyed", "cut"]],
  ])("a call that is %s", async (_, cause, end) => {
    const { pool, driver, unanswered } = mysqlPool();
    pool.prepare = (connection) => void (connection.answer = () => cause);
    await expect(driver.run("SELECT 1")).rejects.toBe(cause);
    expect([pool.made[0]?.done, unanswered()]).toEqual([["SELECT 1", ...end], 0]);
  });

  test("after a call that was not answered none is made on a connection that has not answered since, and it is told", async () => {
    const { clock, pool, driver, unanswered } = mysqlPool();
    await Promise.all(["a", "b", "c"].map((sql) => driver.run(sql)));
    const old = [...pool.made];
    for (const connection of old) connection.answer = () => undefined;
    const silent = expect(driver.run("one")).rejects.toThrow(/no answer within|given up/);
    await clock.advance(LIMIT_MS);
    await silent;
    expect(unanswered()).toBe(1);
    await driver.run("two");
    expect(old.map(({ done }) => [done.includes("two"), ...done.slice(-2)])).toEqual(
      old.map(() => [false, "destroyed", "cut"]),
    );
    await driver.run("three");
    expect(pool.made).toHaveLength(old.length + 1);
    // Who is closed is not told of silence.
    for (const connection of pool.made) connection.answer = () => undefined;
    const late = expect(driver.run("four")).rejects.toThrow(/no answer within/);
    await settle();
    clock.stall(LIMIT_MS);
    driver.close();
    await late;
    expect(unanswered()).toBe(1);
  });

  test("where every connection is suspect one of them is tried in the end", async () => {
    const { clock, pool, driver } = mysqlPool();
    await driver.run("one");
    const [only] = pool.made as [FakeMysqlConnection];
    only.giveBack = () => {};
    pool.getConnection = (done) => done(null, only);
    only.answer = () => undefined;
    const silent = expect(driver.run("two")).rejects.toThrow(/no answer within|given up/);
    await clock.advance(LIMIT_MS);
    await silent;
    only.answer = () => [];
    only.done.length = 0;
    await driver.run("three");
    expect([only.done.filter((call) => call === "destroyed").length, only.done.slice(-2)]).toEqual([
      200,
      ["three", "released"],
    ]);
  });

  test("a connection that is kept is set as ours, and may take longer; one that cannot be set is given up", async () => {
    const { clock, pool, driver } = mysqlPool();
    const connection = await driver.connection(500);
    const [made] = pool.made as [FakeMysqlConnection];
    expect(made.done.join("; ")).toMatch(/autocommit = 1.*sql_safe_updates = 0; .*READ COMMITTED, READ WRITE$/);
    made.answer = () => undefined;
    let ended = false;
    const waits = connection.run("WAIT").catch(() => (ended = true));
    await clock.advance(LIMIT_MS + 499);
    expect(ended).toBe(false);
    await clock.advance(1);
    await waits;
    expect(ended).toBe(true);
    pool.prepare = (one) => void (one.answer = () => mysqlError(1064));
    await expect(driver.connection(0)).rejects.toThrow("error 1064");
    expect(pool.made.at(-1)?.done.slice(-2)).toEqual(["destroyed", "cut"]);
  });

  test("two connections of each engine listen: the others are left for calls, and a pool that is too small is told", () => {
    const { pool, driver } = mysqlPool();
    expect(driver.connections).toBe(5);
    expect(driver.reserveListening()).toBeNull();
    expect(driver.connections).toBe(3);
    expect(driver.reserveListening()).toBeNull();
    expect(driver.connections).toBe(1);
    expect(driver.reserveListening()).toBe("its connectionLimit is 5, and 3 engines on it need 7");
    driver.unreserveListening();
    expect([driver.connections, driver.reserveListening()]).toEqual([3, null]);
    for (const connectionLimit of [1, 2]) {
      const one = new Mysql2Driver({
        pool: Object.assign(new FakeMysqlPool(), { config: { connectionLimit } }),
        clock: new FakeClock(),
        limitMs: 1,
        unanswered: () => {},
      });
      expect(one.reserveListening()).toBe(`its connectionLimit is ${connectionLimit}, and an engine on it need 3`);
    }
    // One that does not say how many it may have.
    pool.config = {};
    expect([driver.reserveListening(), driver.connections]).toEqual([null, 4]);
    driver.reserveListening();
    driver.reserveListening();
    expect(driver.connections).toBe(1);
  });

  test("a pool that has none free says so after the limit, and what comes late goes back unused", async () => {
    const { clock, pool, driver } = mysqlPool();
    pool.full = true;
    const failed = expect(driver.run("one")).rejects.toThrow(/no free connection .* within 1000 ms/);
    await clock.advance(LIMIT_MS);
    await failed;
    const late = new FakeMysqlConnection();
    pool.waiting[0]?.(late);
    await settle();
    expect([late.done, late.listenerCount("error")]).toEqual([["released"], 1]);
    pool.full = false;
    pool.fails = new Error("refused");
    await expect(driver.run("two")).rejects.toThrow("refused");
  });

  test("one that goes silent on its way back is given up", async () => {
    const { clock, pool, driver } = mysqlPool();
    pool.prepare = (connection) => void (connection.releasing = new Promise(() => {}));
    await driver.run("one");
    await clock.advance(LIMIT_MS - 1);
    expect(pool.made[0]?.done).toEqual(["one", "released"]);
    await clock.advance(1);
    expect(pool.made[0]?.done).toEqual(["one", "released", "destroyed", "cut"]);
    pool.prepare = (connection) => void (connection.releasing = Promise.reject(new Error("no")));
    pool.idle.length = 0;
    await driver.run("two");
    await clock.advance(LIMIT_MS);
    expect(pool.made[1]?.done).toEqual(["two", "released"]);
  });
});

describe("a pool of mariadb as one of mysql2", () => {
  class FakeMariadbConnection extends EventEmitter {
    readonly done: unknown[] = [];
    answer: () => Promise<unknown> = async () => [];
    constructor(readonly info: { status?: number | null }) {
      super();
    }
    query({ sql, ...rest }: { sql: string }): Promise<unknown> {
      this.done.push(sql, rest);
      return this.answer();
    }
    async release(): Promise<void> {
      this.done.push("released");
      throw new Error("broken");
    }
    destroy(): void {
      this.done.push("destroyed");
    }
  }
  const poolOf = (getConnection: () => unknown) => ({
    getConnection,
    activeConnections: () => 0,
    taskQueueSize: () => 0,
  });
  const borrowed = (pool: MysqlPool) =>
    new Promise<MysqlConnection>((resolve, reject) =>
      pool.getConnection((error, connection) => (error === null ? resolve(connection) : reject(error))),
    );
  const asked = (connection: MysqlConnection, query: MysqlQuery) =>
    new Promise((resolve, reject) =>
      connection.query(query, (error, result) => (error === null ? resolve(result) : reject(error))),
    );

  test("is told from one of mysql2, and is the same for each engine on it", () => {
    const pool = poolOf(() => {}) as never;
    expect(isMariadbPool(pool)).toBe(true);
    for (const missing of ["getConnection", "activeConnections", "taskQueueSize"]) {
      expect(isMariadbPool({ ...(pool as object), [missing]: undefined })).toBe(true);
      const { [missing]: _, ...other } = pool as Record<string, unknown>;
      expect(isMariadbPool(other), missing).toBe(false);
    }
    expect(mysqlPoolOf(pool)).toBe(mysqlPoolOf(pool));
    expect(mysqlPoolOf(poolOf(() => {}) as never)).not.toBe(mysqlPoolOf(pool));
  });

  test("a connection is told of once, and known again when it is lent in another wrapper", async () => {
    const info = {};
    const wrappers = [new FakeMariadbConnection(info), new FakeMariadbConnection(info), new FakeMariadbConnection({})];
    const lent = [...wrappers];
    const pool = mysqlPoolOf(poolOf(async () => lent.shift()) as never);
    const told: MysqlConnection[] = [];
    pool.on?.("connection", (connection) => told.push(connection));
    const [one, again, other] = [await borrowed(pool), await borrowed(pool), await borrowed(pool)];
    expect(again).toBe(one);
    expect(told).toEqual([one, other]);
    await asked(one, { sql: "SELECT 1" });
    await one.release();
    one?.destroy();
    expect([wrappers[0]?.done, wrappers[1]?.done.filter((text) => typeof text === "string")]).toEqual([
      [],
      ["SELECT 1", "released", "destroyed"],
    ]);
    one?.on?.("error", () => {});
    expect(wrappers[1]?.listenerCount("error")).toBe(1);
  });

  test("pitfall 53: a connection is given up by its socket, as far as the pool shows it", async () => {
    const events = new EventEmitter();
    const wrapper = new FakeMariadbConnection({});
    const cut: unknown[] = [];
    const own = { info: wrapper.info, socket: { destroy: (error: Error) => cut.push(error.message) } as object | null };
    const pool = mysqlPoolOf(
      Object.assign(events, {
        ...poolOf(async () => {
          events.emit("acquire", own);
          return wrapper;
        }),
      }) as never,
    );
    const connection = await borrowed(pool);
    connection.destroy();
    expect([cut, wrapper.done]).toEqual([["the connection was given up"], []]);
    // The library has none any more: it is over, and leaves the pool.
    own.socket = null;
    connection.destroy();
    expect([cut.length, wrapper.done]).toEqual([1, ["destroyed"]]);
  });

  test("values are written as literals that mean the same everywhere, and settings of the pool are undone", async () => {
    const connection = new FakeMariadbConnection({ status: 3 });
    const one = await borrowed(mysqlPoolOf(poolOf(async () => connection) as never));
    await asked(one, { sql: "SELECT ?, ?, ?, ?", values: [Buffer.from("é'"), 1.5, null, undefined] });
    await asked(one, { sql: "SELECT 1" });
    expect([connection.done[0], connection.done[2]]).toEqual(["SELECT x'c3a927', 1.5, NULL, NULL", "SELECT 1"]);
    expect(connection.done[1]).toMatchObject({
      rowsAsArray: false,
      insertIdAsNumber: true,
      jsonStrings: true,
      autoJsonMap: false,
    });
    for (const wrong of ["text", true, Number.NaN, Infinity]) {
      expect(() => one.query({ sql: "?", values: [wrong] }, () => {})).toThrow(/cannot be written/);
    }
    // Rows are passed on; of a change the server's status, too.
    connection.answer = async () => [{ a: 1 }];
    expect(await asked(one, { sql: "SELECT 1" })).toEqual([{ a: 1 }]);
    connection.answer = async () => ({ affectedRows: 1 });
    expect(await asked(one, { sql: "UPDATE" })).toEqual({ affectedRows: 1, serverStatus: 3 });
    connection.info.status = null;
    expect(await asked(one, { sql: "UPDATE" })).toEqual({ affectedRows: 1, serverStatus: 0 });
    for (const nothing of [null, undefined]) {
      connection.answer = async () => nothing;
      expect(await asked(one, { sql: "SELECT 1" })).toBe(nothing);
    }
  });

  test("errors say what the server said, without the statement; the library's own have no number", async () => {
    const connection = new FakeMariadbConnection({});
    const one = await borrowed(mysqlPoolOf(poolOf(async () => connection) as never));
    for (const [over, expected] of [
      [
        { errno: 1142, sqlState: "42000", sqlMessage: "denied", fatal: false },
        { message: "denied", errno: 1142, sqlState: "42000", fatal: false },
      ],
      [
        { errno: 44_999, sqlState: "x" },
        { message: "with sql", errno: 44_999 },
      ],
      [
        { errno: 45_000, sqlState: "x", fatal: true },
        { message: "with sql", errno: undefined, sqlState: undefined, fatal: true },
      ],
      [
        { errno: 0, sqlState: "x" },
        { message: "with sql", errno: undefined, sqlState: undefined },
      ],
      [{}, { message: "with sql", errno: undefined }],
    ] as const) {
      connection.answer = async () => {
        throw Object.assign(new Error("with sql"), over);
      };
      const error = (await asked(one, { sql: "SELECT 1" }).catch((cause: unknown) => cause)) as Record<string, unknown>;
      for (const [key, value] of Object.entries(expected)) expect(error[key], key).toBe(value);
    }
  });

  test("a pool that answers no promise is refused", async () => {
    for (const getConnection of [
      () => undefined,
      () => {
        throw new Error("a callback is needed");
      },
    ]) {
      const pool = mysqlPoolOf(poolOf(getConnection) as never);
      await expect(borrowed(pool)).rejects.toBeInstanceOf(InvalidOptionError);
    }
    const failing = mysqlPoolOf(
      poolOf(async () => {
        throw Object.assign(new Error("no"), { errno: 45_028 });
      }) as never,
    );
    await expect(borrowed(failing)).rejects.toThrow("no");
  });
});
