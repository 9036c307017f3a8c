// How the SQLite engine grows: held names, idle rows, and what is left of the file afterwards.
import { rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { sqliteEngine } from "../../dist/engines/sqlite/index.js";
import { heapUsed, median, progress, table } from "../lib/measure.mjs";
import { newFolder } from "../lib/room.mjs";
import { openSqlite } from "../stores/sqlite.mjs";
import { inChunks, nameOf } from "./names.mjs";

const LEASE_MS = 3_600_000;
/** As many as the core renews in one call. */
const RENEWED_AT_ONCE = 500;
const owner = { client: "c".repeat(22), host: "host", pid: process.pid };
const idOf = (n) => `${"i".repeat(22)}${String(n).padStart(7, "0")}`;
const whole = (value) => Math.round(value).toLocaleString("en");
const mib = (bytes) => (bytes / 2 ** 20).toFixed(1);

class LockFile {
  #folder = newFolder();

  constructor() {
    this.path = join(this.#folder, "locks.db");
    this.engine = sqliteEngine(this.path);
  }

  claim(kind, n) {
    const name = nameOf(kind, n);
    return this.engine.claim({ name, id: idOf(n), units: 1, capacity: 1, leaseMs: LEASE_MS, wait: false, owner });
  }

  release(kind, n) {
    return this.engine.release({ name: nameOf(kind, n), id: idOf(n), tombstone: "never" });
  }

  renew(kind, from, to) {
    const refs = Array.from({ length: to - from }, (_, n) => ({ name: nameOf(kind, from + n), id: idOf(from + n) }));
    return this.engine.renew(refs);
  }

  /** The database alone: the log is of one size, and written from its beginning again. */
  bytes() {
    const own = openSqlite(this.path);
    own.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    own.close();
    return statSync(this.path).size;
  }

  /** Rows, and how many of the pages are free. */
  counts() {
    const own = openSqlite(this.path);
    const one = (sql) => Object.values(own.prepare(sql).get()).find((value) => typeof value === "number");
    const found = { rows: one("SELECT count(*) AS n FROM name"), free: one("PRAGMA freelist_count") };
    own.close();
    return found;
  }

  vacuum() {
    const own = openSqlite(this.path);
    own.exec("PRAGMA busy_timeout = 10000");
    const start = performance.now();
    own.exec("VACUUM");
    const ms = performance.now() - start;
    own.close();
    return ms;
  }

  async close() {
    await this.engine[Symbol.asyncDispose]();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

async function usEach(count, work) {
  const start = performance.now();
  await work();
  return ((performance.now() - start) * 1000) / count;
}

/** Take and give back names that were never there before: one after the other, and 64 at a time. */
async function pairs(file, kind) {
  const alone = async (n) => {
    await file.claim(kind, n);
    await file.release(kind, n);
  };
  const [one, many] = [[], []];
  let n = 0;
  for (let round = 0; round < 9; round += 1) {
    one.push(
      await usEach(200, async () => {
        for (const end = n + 200; n < end; n += 1) await alone(n);
      }),
    );
    const from = n;
    n += 640;
    many.push(await usEach(640, () => inChunks(n, alone, () => {}, 64, from)));
  }
  return { pairUs: median(one), flightUs: median(many) };
}

async function held(size, step) {
  step(`sqlite: ${whole(size)} held`);
  const file = new LockFile();
  await file.engine.ready();
  await pairs(file, "warm");
  const heapBefore = heapUsed();
  const claimUs = await usEach(size, () => inChunks(size, (n) => file.claim("held", n), step));
  const heapBytes = (heapUsed() - heapBefore) / size;
  const bytes = file.bytes() / size;
  let slowestMs = 0;
  let missing = 0;
  const renewUs = await usEach(size, async () => {
    for (let from = 0; from < size; from += RENEWED_AT_ONCE) {
      const start = performance.now();
      const answers = await file.renew("held", from, Math.min(size, from + RENEWED_AT_ONCE));
      slowestMs = Math.max(slowestMs, performance.now() - start);
      missing += answers.filter(({ kind }) => kind !== "granted").length;
    }
  });
  const beside = await pairs(file, "beside");
  const answers = [];
  const releaseUs = await usEach(size, async () => {
    answers.push(...(await inChunks(size, (n) => file.release("held", n), step)));
  });
  missing += answers.filter((answer) => answer !== "released").length;
  await file.close();
  return { size, claimUs, bytes, heapBytes, renewUs, slowestMs, ...beside, releaseUs, missing };
}

/** All of them are held at once and then given back, so that a row of each is left over. */
async function idle(size, step) {
  step(`sqlite: ${whole(size)} idle`);
  const file = new LockFile();
  await file.engine.ready();
  await pairs(file, "warm");
  const fill = async () => {
    await inChunks(size, (n) => file.claim("idle", n), step);
    await inChunks(size, (n) => file.release("idle", n), step);
  };
  await fill();
  const [rows, full] = [file.counts().rows, file.bytes()];
  const beside = await pairs(file, "beside");
  const left = file.counts().rows;
  const sweepUs = await usEach(left, () => file.engine.maintenance());
  const swept = { ...file.counts(), bytes: file.bytes() };
  await fill();
  const again = file.bytes();
  await file.engine.maintenance();
  const vacuumMs = file.vacuum();
  const small = file.bytes();
  // The locks go on working on the file that was written anew.
  const answer = await file.claim("after", 0);
  const missing = (rows < size ? 1 : 0) + swept.rows + (answer.kind === "granted" ? 0 : 1);
  await file.close();
  return { size, rows, full, ...beside, sweepUs, swept: swept.bytes, again, vacuumMs, small, missing };
}

/** @returns whether nothing was lost, and no row left over */
export async function scaleSqlite({ heldSizes, idleSizes, step }) {
  const ofHeld = [];
  for (const size of heldSizes) ofHeld.push(await held(size, step));
  const ofIdle = [];
  for (const size of idleSizes) ofIdle.push(await idle(size, step));
  progress("");
  print(ofHeld, ofIdle);
  return [...ofHeld, ...ofIdle].every((row) => row.missing === 0);
}

function print(ofHeld, ofIdle) {
  const us = (value) => value.toFixed(1);
  table(
    "sqlite: names held by one client, each in microseconds; pairs are on names that were never there before",
    [
      "held",
      "claim",
      "renewal",
      "release",
      "pair beside",
      "64 in flight",
      "slowest call of 500 ms",
      "file bytes",
      "heap bytes",
      "missing",
    ],
    ofHeld.map((row) => [
      whole(row.size),
      ...[row.claimUs, row.renewUs, row.releaseUs, row.pairUs, row.flightUs, row.slowestMs].map(us),
      whole(row.bytes),
      whole(row.heapBytes),
      row.missing,
    ]),
  );
  table(
    "sqlite: rows of names that were held at once and given back; a maintenance() sweeps them; the file in MiB",
    [
      "idle",
      "pair beside µs",
      "64 in flight µs",
      "swept µs a row",
      "file full",
      "swept",
      "filled again",
      "after VACUUM",
      "VACUUM ms",
      "wrong",
    ],
    ofIdle.map((row) => [
      whole(row.rows),
      ...[row.pairUs, row.flightUs, row.sweepUs].map(us),
      ...[row.full, row.swept, row.again, row.small].map(mib),
      whole(row.vacuumMs),
      row.missing,
    ]),
  );
}
