import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import { PLACES, type Place } from "../servers/places.js";

/**
 * Servers that answer garbage, halves, wrong lengths, a byte at a time, twice, in another order or to another request, on every
 * driver: `hostile-proxy.mjs` has the table of attacks, `hostile.mjs` what must hold. A proxy stands before the real server, so
 * that every step of a session is attacked, the handshake as well as a push.
 *
 * Required: every call settles within its time limit; nothing is thrown past the calls; connections, timers and memory do not
 * grow; once the server is honest again claims are granted, with greater tokens; and nothing is granted that another holds.
 */

type Findings = { readonly rounds: number; readonly hits: number; readonly connectionsMost: number } & Readonly<
  Record<"crashes" | "hangs" | "grown" | "stolen" | "unrecovered" | "tokens", readonly string[]>
>;

const PROGRAM = resolve(import.meta.dirname, "../process/hostile.mjs");
const GOOD = { crashes: [], hangs: [], grown: [], stolen: [], unrecovered: [], tokens: [] };
/** Only what hangs runs into it. */
const LIMIT = { timeout: 300_000 };

/** What a driver's own code does not survive, and nothing outside of it can change. */
type Excuse = {
  readonly version: string;
  readonly why: string;
  readonly attacks: readonly string[];
  /** Where it throws, for an attack that only sometimes gets there: everything else of that attack is still required. */
  readonly thrownAt?: RegExp;
};
type Driver = {
  readonly store: string;
  readonly library?: string;
  readonly excuse?: Excuse;
  /** What no client can tell from an honest answer. */
  readonly lies?: readonly string[];
};

const DRIVERS: Readonly<Record<string, Driver>> = {
  ioredis: {
    store: "redis",
    library: "ioredis",
    excuse: {
      version: "6.0.0",
      why: "its DataHandler throws past everybody when a connection that subscribes is answered with anything but a list of three",
      attacks: ["length: below zero", "length: below zero, then silence"],
      // The length of that list may be what the bit turns; RESP3 pushes it.
      thrownAt: /^a bit turned, .* DataHandler\.return(?:Reply|Push) /,
    },
  },
  "node-redis": { store: "redis" },
  postgres: {
    store: "postgres",
    library: "pg-protocol",
    excuse: {
      version: "1.16.1",
      why:
        "its parser throws past everybody at a message that it cannot read, and at a length below four reads the same bytes again " +
        "or waits for ever, on a connection that the pool does not end",
      attacks: [
        "garbage in a whole frame",
        "a bit turned",
        "half, then the next answers",
        "length: zero",
        "length: zero, then silence",
        "length: below zero",
        "length: below zero, then silence",
      ],
    },
  },
  mysql: { store: "mariadb" },
  etcd: { store: "etcd" },
  // The number of a transaction, with an answer that is otherwise in order: a client that has seen a later one than the servers
  // have may not go on with them.
  zookeeper: { store: "zookeeper", lies: ["a bit turned", "half, then the next answers"] },
};

const places = new Map<string, Promise<Place>>();
afterAll(async () => {
  for (const place of places.values()) await (await place).stop();
});

function placeOf(store: string): Promise<Place> {
  const place = places.get(store) ?? (PLACES[store] ?? expect.fail())();
  places.set(store, place);
  return place;
}

async function attacked(driver: string, input: object): Promise<Findings> {
  const { url } = await placeOf(DRIVERS[driver]?.store ?? "");
  const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM, JSON.stringify({ driver, url, ...input })], {
    timeout: LIMIT.timeout - 20_000,
    killSignal: "SIGKILL",
    maxBuffer: 1e8,
  });
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as Findings;
}

// Each is a process that mostly waits.
describe.concurrent("a server that answers wrongly", () => {
  test.each(Object.entries(DRIVERS))(
    "%s: nothing hangs, ends the program, grows or is stolen",
    LIMIT,
    async (driver, { excuse, lies = [] }) => {
      const skip = [...(excuse?.attacks ?? []), ...lies];
      const { rounds, hits, connectionsMost, ...found } = await attacked(driver, { skip });
      console.log(`${driver}: ${rounds} rounds, ${hits} answers spoiled, at most ${connectionsMost} connections`);
      const crashes = found.crashes.filter((crash) => excuse?.thrownAt?.test(crash) !== true);
      expect({ ...found, crashes }).toEqual(GOOD);
      expect(hits).toBeGreaterThan(rounds / 2);
    },
  );

  // Told by their failing when the driver has been mended: then the attacks go to the others.
  test.each(Object.entries(DRIVERS).filter(([, { excuse }]) => excuse !== undefined))(
    "%s: what is left out is the driver's own fault, as long as it is this version",
    LIMIT,
    async (driver, { library = "", excuse }) => {
      const file = resolve(import.meta.dirname, `../../node_modules/${library}/package.json`);
      const { version } = JSON.parse(readFileSync(file, "utf8")) as { version: string };
      expect(version, `Another version of ${library}: look whether it is mended. Until now ${excuse?.why}.`).toBe(
        excuse?.version,
      );
      const {
        rounds: _,
        hits: __,
        connectionsMost: ___,
        ...found
      } = await attacked(driver, { only: excuse?.attacks.slice(0, 1) });
      expect(found).not.toEqual(GOOD);
    },
  );
});
