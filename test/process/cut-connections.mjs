// A program whose connections end at every step of its life, and that counts what would have killed it: errors which nobody
// listened to. It is a process of its own, because a test runner listens to such errors itself.
// In: { url, kind: "url" | "pool" | "client" | "mariadb" | "neon", libraries, cut: "joined" | "bytes", from, to, step }; the module
// `libraries` has the last two. Out: { cuts, crashes, done }, one line.
import { createServer, connect as dial } from "node:net";
import { connect } from "../../dist/index.js";

const { url, kind, libraries, cut, from, to, step } = JSON.parse(process.argv[2]);
const postgres = url.startsWith("postgres");
let at = 0;
let cuts = 0;
let done = 0;
const crashes = [];
const note = (error) => crashes.push(`at ${at}: ${error instanceof Error ? error.message : String(error)}`);
process.on("uncaughtException", note);
process.on("unhandledRejection", note);

/** What a server that ends a connection sends last. */
function lastWords() {
  if (postgres) {
    const body = Buffer.from("SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0");
    const head = Buffer.alloc(5);
    head.write("E");
    head.writeInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  }
  const body = Buffer.concat([Buffer.from([0xff, 0x87, 0x07]), Buffer.from("#70100Connection was killed")]);
  return Buffer.concat([Buffer.from([body.length, 0, 0, 0]), body]);
}

/** Where the n-th whole answer of the server ends in what came so far; -1 as long as it has not come. */
function answerEnd(data, n) {
  let seen = 0;
  for (let place = 0; place + 5 <= data.length; ) {
    const length = postgres ? 1 + data.readInt32BE(place + 1) : 4 + data.readUIntLE(place, 3);
    const whole = place + length <= data.length;
    // ReadyForQuery; or any packet of MariaDB, whose answers have no common end.
    if (whole && (!postgres || data[place] === 0x5a) && ++seen === n) return place + length;
    place += length;
  }
  return -1;
}

/** Ends the first connections at the n-th answer or byte; the others live. */
async function proxyTo(port, n) {
  let left = 3;
  const server = createServer((near) => {
    const mine = left-- > 0;
    const far = dial(port, "127.0.0.1");
    let data = Buffer.alloc(0);
    let over = false;
    near.setNoDelay(true);
    near.on("data", (bytes) => far.write(bytes));
    far.on("data", (bytes) => {
      if (over) return;
      const before = data.length;
      data = Buffer.concat([data, bytes]);
      const end = cut === "joined" ? answerEnd(data, n) : data.length >= n ? n : -1;
      if (!mine || end < 0) {
        near.write(bytes);
        return;
      }
      over = true;
      cuts += 1;
      // In one write, so that they come in one packet.
      near.end(Buffer.concat([data.subarray(before, end), cut === "joined" ? lastWords() : Buffer.alloc(0)]));
      far.destroy();
    });
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      one.on("error", () => other.destroy());
      one.on("close", () => over || other.destroy());
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

/** Each is given a while and may fail: all that counts is that the program lives. */
const tried = (promise) => Promise.resolve(promise).catch(() => {});

async function clientOf(address) {
  if (kind === "url") return { target: address, end: async () => {} };
  if (libraries !== undefined) return driverOf(await import(libraries), address);
  if (postgres) {
    const { default: pg } = await import("pg");
    const { postgresEngine } = await import("../../dist/engines/postgres/index.js");
    const options = { connectionString: address, max: 2, connectionTimeoutMillis: 2000 };
    if (kind === "pool") {
      const pool = new pg.Pool(options);
      pool.on("error", () => {});
      return { target: () => postgresEngine(pool, { callTimeoutMs: 2000 }), end: () => pool.end() };
    }
    const client = new pg.Client(options);
    // Until it is handed over it is the program's own.
    const own = () => {};
    client.on("error", own);
    await client.connect();
    client.removeListener("error", own);
    return { target: () => postgresEngine(client, { callTimeoutMs: 2000 }), end: () => client.end() };
  }
  const { createPool } = await import("mysql2/promise");
  const { mysqlEngine } = await import("../../dist/engines/mysql/index.js");
  const pool = createPool({ uri: address, connectionLimit: 5, connectTimeout: 2000 });
  return { target: () => mysqlEngine(pool, { callTimeoutMs: 2000 }), end: () => pool.end() };
}

/** Pools of other libraries, with the listeners that their own pages ask for. */
async function driverOf({ mariadb, NeonPool }, address) {
  if (kind === "mariadb") {
    const { mysqlEngine } = await import("../../dist/engines/mysql/index.js");
    const { hostname: host, port, username: user } = new URL(address);
    const pool = mariadb.createPool({ host, port: Number(port), user, connectionLimit: 5, minimumIdle: 1 });
    return { target: () => mysqlEngine(pool, { callTimeoutMs: 2000 }), end: () => pool.end() };
  }
  const { postgresEngine } = await import("../../dist/engines/postgres/index.js");
  const pool = new NeonPool({ connectionString: address, max: 2, connectionTimeoutMillis: 2000 });
  pool.on("error", () => {});
  return { target: () => postgresEngine(pool, { callTimeoutMs: 2000 }), end: () => pool.end() };
}

async function session(address) {
  const { target, end } = await clientOf(address);
  let engine;
  const open = async () => {
    if (typeof target !== "string") engine = await target();
    return connect(engine ?? target, { callTimeoutMs: 2000 });
  };
  // Often enough to come past the connections that end.
  const locks = kind === "client" ? await open() : await open().catch(open).catch(open).catch(open);
  const lock = locks.mutex("cut");
  const turn = () => lock.using({ waitMs: 500, leaseMs: 1000 }, () => {});
  await tried(turn());
  await tried(Promise.all([tried(turn()), tried(turn()), tried(turn())]));
  await tried(locks.counter("cut").add(1));
  await tried(locks.close());
  await tried(engine?.[Symbol.asyncDispose]());
  await tried(end());
  done += 1;
}

if (kind === "neon") await (await import(libraries)).startWebSocketProxy();
for (at = from; at <= to; at += step) {
  const server = await proxyTo(Number(new URL(url).port), at);
  const address = new URL(url);
  address.port = String(server.address().port);
  await tried(session(address.href));
  server.close();
}
console.log(JSON.stringify({ cuts, crashes: [...new Set(crashes)], done }));
process.exit(0);
