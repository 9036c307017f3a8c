import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { connect } from "node:net";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import Database from "libsql";
import { expect, onTestFinished, test } from "vitest";
import { fencedFetch, fenceTable, StaleTokenError, tokenHeaders } from "../../src/fence/index.js";
import { query as queryMariadb, startMariadb } from "../servers/mariadb.js";
import { query as queryPostgres, startPostgres } from "../servers/postgres.js";
import { quickFolder } from "../servers/process.js";
import { startRedis } from "../servers/redis.js";

/** Each kind of server with another store, in two processes that share it. */
const SETUPS: readonly [framework: string, store: string, open: (folder: string) => Promise<string>][] = [
  ["node", "redis", openRedis],
  ["express", "postgres", openPostgres],
  ["fastify", "mysql", openMariadb],
  ["hono", "sqlite", openSqlite],
];

async function openRedis(): Promise<string> {
  const { url, running } = await startRedis();
  onTestFinished(() => running.stop());
  return url;
}

async function openPostgres(): Promise<string> {
  const { url, running } = await startPostgres();
  onTestFinished(() => running.stop());
  await queryPostgres(url, fenceTable("postgres"));
  return url;
}

async function openMariadb(): Promise<string> {
  const { url, running } = await startMariadb();
  onTestFinished(() => running.stop());
  await queryMariadb(url, "CREATE DATABASE fence");
  await queryMariadb(`${url}/fence`, fenceTable("mysql"));
  return `${url}/fence`;
}

async function openSqlite(folder: string): Promise<string> {
  const path = join(folder, "db");
  const db = new Database(path);
  db.exec("PRAGMA journal_mode = WAL");
  db.exec(fenceTable("sqlite"));
  db.close();
  return path;
}

/** The address of a server in a process of its own, which ends with the test. */
async function server(settings: object): Promise<string> {
  const program = resolve(import.meta.dirname, "fence-server.mjs");
  const child = spawn(process.execPath, [program, JSON.stringify(settings)], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const [port] = (await once(createInterface(child.stdout), "line")) as [string];
  return `http://127.0.0.1:${port}`;
}

/** What somebody may send who wants to do harm; none of it may be accepted, and none may end the server. */
const HOSTILE: readonly [what: string, path: string, headers: Record<string, string>, status: number][] = [
  ["a path of 600 characters", `/${"x".repeat(600)}`, {}, 400],
  [
    "a path of 600 characters with a token",
    `/${"x".repeat(600)}`,
    { "Holdfast-Token": "5", "Holdfast-Lock": "x" },
    400,
  ],
  ["a path of 300 characters of three bytes", `/${"%E2%82%AC".repeat(300)}`, {}, 400],
  ["no token", "/stock", {}, 428],
  ["a token of 10 kB", "/stock", { "Holdfast-Token": "9".repeat(10_000), "Holdfast-Lock": "item%3Astock" }, 400],
  [
    "a list of 2,000 live tokens",
    "/stock",
    { ...tokenHeaders(7, "item:stock"), "Holdfast-Live": "7 ".repeat(2_000) },
    400,
  ],
];

test.each(["node", "express", "fastify", "hono"])(
  "%s: bad names and hostile headers are answered, and the server lives on",
  { timeout: 240_000 },
  async (framework) => {
    const folder = mkdtempSync(join(quickFolder(), "holdfast-fence-http-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const url = await openSqlite(folder);
    const address = await server({ framework, store: "sqlite", url, folder, bare: true });
    for (const [what, path, headers, status] of HOSTILE) {
      const response = await fetch(`${address}${path}`, { method: "PUT", headers, body: "x" });
      const type = response.headers.get("content-type") ?? "";
      const told = [what, response.status, type.split(";")[0], ((await response.json()) as { status: number }).status];
      expect(told).toEqual([what, status, "application/problem+json", status]);
    }
    await hangUp(
      address,
      `PUT /stock HTTP/1.1\r\nHost: x\r\nHoldfast-Token: 5\r\nHoldfast-Lock: item%3Astock\r\n${BODY}`,
    );
    // Twice the same header, and a path whose percent-encoding is none.
    expect(
      await raw(address, `PUT /stock HTTP/1.1\r\nHost: x\r\nHoldfast-Token: 5\r\nHoldfast-Token: 6\r\n${LOCK}`),
    ).toMatch(/ 400 /);
    expect(await raw(address, `PUT /%zz HTTP/1.1\r\nHost: x\r\nHoldfast-Token: 5\r\n${LOCK}`)).toMatch(/ 400 /);
    const put = await fencedFetch({ name: "item:stock", token: 7 }, `${address}/stock`, {
      method: "PUT",
      headers: { "Content-Type": "text/plain" },
      body: "alive",
    });
    expect([put.status, await put.text()]).toEqual([200, "written"]);
  },
);

const BODY = "Content-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf";
const LOCK = "Holdfast-Lock: item%3Astock\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/** Says something that no HTTP client would send, and returns the first line of the answer. */
async function raw(address: string, text: string): Promise<string> {
  const { hostname, port } = new URL(address);
  const socket = connect(Number(port), hostname);
  socket.write(text);
  const [line] = (await once(createInterface(socket), "line")) as [string];
  socket.destroy();
  return line;
}

/** Leaves in the middle of its own request. */
async function hangUp(address: string, text: string): Promise<void> {
  const { hostname, port } = new URL(address);
  const socket = connect(Number(port), hostname);
  await new Promise((resolve) => socket.write(text, resolve));
  socket.resetAndDestroy();
}

const REQUESTS = 400;
const LANES = 12;

test.each(SETUPS)(
  "%s, the fence in %s: stale and fresh tokens race at two processes",
  { timeout: 240_000 },
  async (framework, store, open) => {
    const folder = mkdtempSync(join(quickFolder(), "holdfast-fence-http-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const url = await open(folder);
    const settings = { framework, store, url, folder };
    const [one, two] = await Promise.all([server(settings), server(settings)]);
    const base = Date.now() * 1000;
    const put = (at: number, token: number): Promise<Response> =>
      fencedFetch({ name: "item:stock", token: base + token }, `${at % 2 === 0 ? one : two}/stock`, {
        method: "PUT",
        headers: { "Content-Type": "text/plain" },
        body: String(token),
      });

    let [sent, newest, confirmed, refused] = [0, 0, 0, 0];
    const lane = async (): Promise<void> => {
      while (sent < REQUESTS) {
        sent += 1;
        // A new holder, or one of those whose lock has passed on.
        const token = sent % 3 === 0 ? Math.max(1, newest - (sent % 7)) : (newest += 1);
        const bar = confirmed;
        try {
          const response = await put(sent, token);
          const text = await response.text();
          expect([response.status, text]).toEqual([200, "written"]);
          // Whatever was answered before this was sent counts.
          expect(token).toBeGreaterThanOrEqual(bar);
          confirmed = Math.max(confirmed, token);
        } catch (error) {
          expect(error).toBeInstanceOf(StaleTokenError);
          expect(token).toBeLessThan(newest);
          refused += 1;
        }
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    expect(refused).toBeGreaterThan(REQUESTS / 10);
    expect(REQUESTS - refused).toBeGreaterThan(REQUESTS / 20);
    await put(0, newest);
    expect(await readFile(join(folder, "stock"), "utf8")).toBe(String(newest));

    // What a client is told, by either process.
    const headers = tokenHeaders(base + newest, "item:stock");
    const ask = async (address: string, changed: Record<string, string>): Promise<[number, string, unknown]> => {
      const response = await fetch(`${address}/stock`, { method: "PUT", headers: changed, body: "x" });
      return [response.status, response.headers.get("content-type") ?? "", await response.json()];
    };
    for (const address of [one, two]) {
      const stale = await ask(address, tokenHeaders(base + newest - 1, "item:stock"));
      const told = { type: "urn:holdfast:stale-token", status: 409, lock: "item:stock", token: base + newest - 1 };
      expect(stale).toMatchObject([409, expect.stringMatching(/^application\/problem\+json/), told]);
      const missing = await ask(address, {});
      expect(missing).toMatchObject([
        428,
        expect.stringMatching(/^application\/problem\+json/),
        { type: "urn:holdfast:missing-token" },
      ]);
      const unnamed = await ask(address, { "Holdfast-Token": "5" });
      expect(unnamed).toMatchObject([428, expect.anything(), { type: "urn:holdfast:missing-token" }]);
      const other = await ask(address, tokenHeaders(base + newest, "item:other"));
      expect(other).toMatchObject([400, expect.anything(), { type: "urn:holdfast:wrong-lock" }]);
      for (const bad of ["-5", "5.5", "1e3", "", "x", "99999999999999999", String(base * 4), "5, 6"]) {
        const invalid = await ask(address, { ...headers, "Holdfast-Token": bad });
        expect([bad, ...invalid]).toMatchObject([bad, 400, expect.anything(), { type: "urn:holdfast:invalid-token" }]);
      }
    }
    expect(await readFile(join(folder, "stock"), "utf8")).toBe(String(newest));
  },
);
