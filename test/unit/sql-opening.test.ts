import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import { EngineUnavailableError, InvalidOptionError, UnsupportedError } from "../../src/core/errors.js";
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
  connect(): Promise<never> {
    return Promise.reject(this.cause);
  }
  getConnection(done: (error: Error) => void): void {
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
    expect(last().done).toEqual(["end"]);
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
