import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import type { EngineEvent } from "../../src/core/engine.js";
import { EngineUnavailableError, InvalidOptionError, UnsupportedError } from "../../src/core/errors.js";
import { LAYOUT_VERSIONS } from "../../src/engine-kit/layout-version.js";
import { mysqlEngine, openMysql } from "../../src/engines/mysql/index.js";
import { openPostgres, postgresEngine } from "../../src/engines/postgres/index.js";

/** What client libraries are told when an engine is opened by URL, what is made of what they say, and what is refused. */

class Pool extends EventEmitter {
  static made: Pool[] = [];
  readonly done: string[] = [];
  readonly totalCount = 0;
  constructor(readonly options: Record<string, unknown>) {
    super();
    Pool.made.push(this);
  }
  readonly pool = this;
  cause: Error = new Error("ECONNREFUSED");
  /** A connection that is made, and of no use. */
  #made(): object {
    const stream = { destroyed: false, destroy: () => this.done.push("destroyed") };
    return Object.assign(new EventEmitter(), { stream, connection: { stream } });
  }
  connect(): Promise<never> {
    this.emit("connect", this.#made());
    return Promise.reject(this.cause);
  }
  getConnection(done: (error: Error) => void): void {
    this.emit("connection", this.#made());
    queueMicrotask(() => done(this.cause));
  }
  async end(): Promise<void> {
    this.done.push("end");
  }
}

const last = (): Pool => Pool.made.at(-1) as Pool;
class Client extends EventEmitter {}

describe.each([
  [
    "PostgreSQL",
    (options: object, url?: string) =>
      openPostgres(url ?? "postgres://u:p@h/d", options, async () => ({ Pool, Client })),
    {
      connectionString: "postgres://u:p@h/d",
      max: 8,
      connectionTimeoutMillis: 700,
      keepAlive: true,
      application_name: "holdfast",
    },
  ],
  [
    "MySQL",
    (options: object, url?: string) =>
      openMysql(url ?? "mysql://u:p@h/d", options, async () => ({
        default: { createPool: (given: Record<string, unknown>) => new Pool(given) },
      })),
    {
      host: "h",
      user: "u",
      password: "p",
      connectionLimit: 10,
      connectTimeout: 700,
      enableKeepAlive: true,
      charset: "utf8mb4",
      maxPreparedStatements: 1,
    },
  ],
] as const)("%s by URL", (name, open, told) => {
  test("the library gets a pool of our size and time limit; a server that is away is told as such, and the pool ends", async () => {
    const opening = open({ callTimeoutMs: 700 });
    await expect(opening).rejects.toBeInstanceOf(EngineUnavailableError);
    await expect(opening).rejects.toThrow(/ECONNREFUSED/);
    expect(last().options).toMatchObject(told);
    expect(last().options).not.toHaveProperty("stream");
    expect(last().options).not.toHaveProperty("Client");
    // With every connection that it made.
    expect(last().done).toEqual(["end", "destroyed"]);
    // A connection that breaks while nobody uses it ends no program.
    if (name === "PostgreSQL") expect(last().listenerCount("error")).toBe(1);
  });

  test("who asks for credentials has them asked by the library; options of the URL and of the call are both heard", async () => {
    await expect(
      open({ credentials: async () => ({ password: "x" }) }, `${name === "MySQL" ? "mysql" : "postgres"}://h/d`),
    ).rejects.toThrow();
    expect(last().options[name === "MySQL" ? "stream" : "Client"]).toBeTypeOf("function");
    const made = Pool.made.length;
    const url = `${name === "MySQL" ? "mysql" : "postgres"}://h/d?schema=1a`;
    await expect(open({}, url)).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(open({ other: 1 })).rejects.toBeInstanceOf(InvalidOptionError);
    if (name === "PostgreSQL") await expect(open({ durable: "no" })).rejects.toBeInstanceOf(InvalidOptionError);
    expect(Pool.made).toHaveLength(made);
  });

  test("without the library the error has the command that installs it", async () => {
    const none = (library: string) =>
      Promise.reject(
        Object.assign(new Error(`Cannot find package '${library.split("/")[0]}'`), { code: "ERR_MODULE_NOT_FOUND" }),
      );
    const opening = name === "MySQL" ? openMysql("mysql://h", {}, none) : openPostgres("postgres://h", {}, none);
    await expect(opening).rejects.toBeInstanceOf(UnsupportedError);
    await expect(opening).rejects.toThrow(name === "MySQL" ? /npm install mysql2/ : /npm install pg/);
  });
});

test("what is no pool and no client is refused with what to do", async () => {
  for (const wrong of [undefined, null, {}, "mysql://h", 1]) {
    await expect(mysqlEngine(wrong as never)).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(postgresEngine(wrong as never)).rejects.toBeInstanceOf(InvalidOptionError);
  }
  const postgresJs = Object.assign(() => {}, { listen: () => {} });
  await expect(postgresEngine(postgresJs as never)).rejects.toThrow(/postgres.js cannot/);
  await expect(postgresEngine((() => {}) as never)).rejects.toThrow(/query over HTTP/);
});

describe("on PostgreSQL", () => {
  /** A client whose server has a lock table. */
  class ServedClient extends EventEmitter {
    readonly done: string[] = [];
    async query({ text }: { text: string }): Promise<object> {
      const { highest: version, lowest: least } = LAYOUT_VERSIONS.postgres;
      const usual = { recovery: "false", encoding: "UTF8", fsync: "on", commit: "on", standbys: "", senders: "0" };
      this.done.push(text);
      return { rows: [{ ...usual, version, least, answer: '"resized"' }] };
    }
    async connect(): Promise<never> {
      throw new Error("it is connected");
    }
    release(): void {
      this.done.push("released");
    }
    async end(): Promise<void> {}
  }

  class ServedPool extends EventEmitter {
    static made: ServedPool[] = [];
    readonly totalCount = 0;
    readonly client = new ServedClient();
    lent = 0;
    constructor(readonly options: { max?: number }) {
      super();
      ServedPool.made.push(this);
    }
    async connect(): Promise<ServedClient> {
      this.lent += 1;
      return this.client;
    }
    async end(): Promise<void> {}
  }

  const warnings = async (engine: Awaited<ReturnType<typeof postgresEngine>>): Promise<string[]> => {
    const told: EngineEvent[] = [];
    engine.listen((event) => told.push(event));
    await Promise.resolve();
    return told.flatMap((event) => (event.kind === "warning" ? [event.message] : []));
  };

  test("a client is used as it is, and never connected", async () => {
    const client = new ServedClient();
    await using engine = await postgresEngine(client as never, { wake: "poll" });
    expect(await engine.resize?.({ name: "n", id: "i" }, 1)).toBe("resized");
    expect([client.done.length, client.done.includes("released"), await warnings(engine)]).toEqual([3, false, []]);
  });

  test("a pool gets each connection back; one that has a single connection is warned of", async () => {
    for (const [max, warned] of [
      [1, [expect.stringContaining("the pool has one connection")]],
      [2, []],
      [undefined, []],
    ] as const) {
      const pool = new ServedPool(max === undefined ? {} : { max });
      await using engine = await postgresEngine(pool as never, { wake: "poll" });
      await engine.resize?.({ name: "n", id: "i" }, 1);
      expect([pool.lent, pool.client.done.filter((one) => one === "released").length]).toEqual([3, 3]);
      expect(await warnings(engine)).toEqual(warned);
    }
  });

  test("of a pool that is ours alone a connection stays in hand", async () => {
    const load = async () => ({ Pool: ServedPool, Client });
    await using engine = await openPostgres("postgres://h/d", { wake: "poll" }, load);
    await engine.resize?.({ name: "n", id: "i" }, 1);
    expect(ServedPool.made.at(-1)).toMatchObject({
      lent: 1,
      client: { done: [expect.anything(), expect.anything(), expect.anything()] },
    });
  });
});

test("a pool of mariadb is asked for its connections by promises, and its time limit is a whole number of milliseconds", async () => {
  const asked: unknown[][] = [];
  const pool = {
    getConnection: (...args: unknown[]) => {
      asked.push(args);
      return Promise.reject(new Error("ECONNREFUSED"));
    },
    activeConnections: () => 0,
    taskQueueSize: () => 0,
  };
  await expect(mysqlEngine(pool as never)).rejects.toThrow("ECONNREFUSED");
  expect(asked).toEqual([[]]);
  const load = async () => ({ createPool: (given: Record<string, unknown>) => new Pool(given) });
  await expect(openMysql("mysql://h", { callTimeoutMs: 700.5 }, load)).rejects.toThrow();
  expect(last().options["connectTimeout"]).toBe(701);
});
