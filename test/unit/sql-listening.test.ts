import { describe, expect, test } from "vitest";
import type { EngineEvent } from "../../src/core/engine.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { MysqlDatabase } from "../../src/engines/mysql/database.js";
import type { Mysql2Driver } from "../../src/engines/mysql/drivers/mysql2.js";
import { Listener } from "../../src/engines/mysql/events.js";
import { checkOptions as mysqlOptions } from "../../src/engines/mysql/options.js";
import { PostgresDatabase } from "../../src/engines/postgres/database.js";
import type { Driver, ListeningConnection, OnNotification, PgQuery } from "../../src/engines/postgres/driver.js";
import { checkOptions as postgresOptions } from "../../src/engines/postgres/options.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** How clients of PostgreSQL and MySQL are told of grants, and what they do while they are not. */

const INTERRUPTED = Object.assign(new Error("interrupted"), { errno: 1317, sqlState: "70100" });
const granted = (id: string) => ({ kind: "granted", name: "n", id, token: 1, floor: 1 });
const message = (seq: number, event: unknown = granted(String(seq))) => ({ seq, event: JSON.stringify(event) });

type Wait = { resolve(sets: unknown): void; reject(cause: Error): void };

/** A MySQL server for one client that listens: its named locks, and waits that end when the test says so. */
function mysqlServer() {
  const clock = new FakeClock();
  const state = {
    away: false,
    holders: {} as Record<string, number>,
    got: 1,
    canWake: true,
    /** How often a connection was asked for. */
    asked: 0,
  };
  const connections: { readonly done: string[]; readonly longerMs: number }[] = [];
  const waits: Wait[] = [];
  const wakes: number[] = [];
  const told: EngineEvent[] = [];
  let deleting: () => Promise<unknown> = async () => [];
  const connection = async (longerMs: number) => {
    state.asked += 1;
    if (state.away) throw new Error("away");
    const done: string[] = [];
    connections.push({ done, longerMs });
    const ends = new Set<(cause: Error) => void>();
    const run = async (sql: string, values?: unknown[]): Promise<unknown> => {
      done.push(sql);
      const [, lock = ""] = /'(.*)'/.exec(sql) ?? [];
      if (sql.includes("IS_USED_LOCK")) return [[{ holder: state.holders[lock] ?? null }]];
      if (sql.includes("GET_LOCK")) return [[{ got: state.got }]];
      if (sql.startsWith("KILL")) throw new Error("it has gone in between");
      if (sql.startsWith("DELETE")) return deleting();
      expect([sql, values]).toEqual(["CALL `s`.listen(?, 2)", [Buffer.from("me")]]);
      return new Promise((resolve, reject) => {
        ends.add(reject);
        waits.push({ resolve, reject });
      });
    };
    const close = (): void => {
      done.push("closed");
      for (const end of ends) end(new Error("given up"));
    };
    return { run, close };
  };
  const driver = {
    connection,
    run: async (sql: string, values: unknown[]) => {
      expect([sql, values]).toEqual(["CALL `s`.wake(?)", [Buffer.from("me")]]);
      wakes.push(clock.now());
      if (state.canWake) waits.shift()?.reject(INTERRUPTED);
      return [];
    },
  } as unknown as Mysql2Driver;
  const chance = new SeededChance(1);
  const listener = new Listener({
    driver,
    clock,
    chance,
    schema: "s",
    client: "me",
    tell: (event) => told.push(event),
  });
  const opened = async (): Promise<boolean | Error> => {
    const opening = listener.open().catch((cause: Error) => cause);
    await clock.advance(60_000);
    return opening;
  };
  /** Ends the wait that is under way. */
  const wait = async (sets: unknown): Promise<void> => {
    const one = waits.shift() as Wait;
    if (sets instanceof Error) one.reject(sets);
    else one.resolve(sets);
    await clock.advance(0);
  };
  const onDelete = (run: typeof deleting): void => void (deleting = run);
  return { clock, state, connections, waits, wakes, told, listener, opened, wait, onDelete };
}

const RAN_OUT = [[{ free: 0 }], []];
const WOKEN = [[{ free: null }], []];

describe("a client of MySQL's", () => {
  const [LISTENER, WAIT] = ["holdfast listener me", "holdfast wait me"];

  test("listens on a connection that waits for a lock which another one keeps, after those of before have gone", async () => {
    const { clock, state, connections, waits, told, listener, opened } = mysqlServer();
    state.holders = { [LISTENER]: 5, [WAIT]: 6 };
    expect(await opened()).toBe(true);
    expect(connections.map(({ longerMs }) => longerMs)).toEqual([2000, 2000]);
    expect(connections.map(({ done }) => done)).toEqual([
      [
        ...[`SELECT IS_USED_LOCK('${LISTENER}') AS holder`, "KILL CONNECTION 5"],
        ...[`SELECT IS_USED_LOCK('${WAIT}') AS holder`, "KILL CONNECTION 6"],
        `SELECT GET_LOCK('${WAIT}', 2) AS got`,
      ],
      [`SELECT GET_LOCK('${LISTENER}', 2) AS got`, "CALL `s`.listen(?, 2)", "CALL `s`.listen(?, 2)"],
    ]);
    expect([waits.length, told]).toEqual([1, []]);
    listener.close();
    await listener.ended();
    expect(connections.map(({ done }) => done.at(-1))).toEqual(["closed", "closed"]);
    expect(clock.pending).toBe(0);
    const alone = mysqlServer();
    await alone.opened();
    expect(alone.connections[0]?.done).toEqual([
      ...[LISTENER, WAIT].map((lock) => `SELECT IS_USED_LOCK('${lock}') AS holder`),
      `SELECT GET_LOCK('${WAIT}', 2) AS got`,
    ]);
    alone.listener.close();
  });

  test("is woken by one of twenty calls, or not at all; a wait that ran out before is tried again, five times", async () => {
    const never = mysqlServer();
    never.state.canWake = false;
    const opening = never.listener.open();
    // Twenty calls, ten milliseconds apart: the wait is over by itself before the next.
    for (let attempt = 1; attempt <= 5; attempt += 1) {
      expect(never.waits).toHaveLength(attempt === 1 ? 0 : 1);
      await never.clock.advance(195);
      await never.wait(RAN_OUT);
      await never.clock.advance(5);
    }
    expect(await opening).toBe(false);
    expect(never.wakes).toHaveLength(100);
    expect(never.connections.map(({ done }) => done.at(-1))).toEqual(["closed", "closed"]);
    await never.listener.ended();
    const enough = mysqlServer();
    enough.state.canWake = false;
    const second = enough.listener.open();
    await enough.clock.advance(1000);
    // Twenty in the first 200 ms, and then one every 100 ms.
    expect(enough.wakes.slice(0, 21)).toEqual([...Array.from({ length: 20 }, (_, n) => 10 * (n + 1)), 300]);
    await enough.wait(RAN_OUT);
    await enough.clock.advance(100);
    expect(await second).toBe(false);
    const late = mysqlServer();
    const third = late.listener.open();
    late.state.canWake = false;
    await late.clock.advance(15);
    await late.wait(RAN_OUT);
    late.state.canWake = true;
    await late.clock.advance(10_000);
    expect(await third).toBe(true);
    late.listener.close();
  });

  test("that cannot take its lock, or whose wait fails, does not listen, and is told", async () => {
    const { state, connections, listener, opened } = mysqlServer();
    state.got = 0;
    expect(String(await opened())).toContain(`"${WAIT}" is still held`);
    listener.close();
    expect(connections.map(({ done }) => done.at(-1))).toEqual(["closed"]);
    const failing = mysqlServer();
    failing.state.canWake = false;
    const opening = failing.listener.open().catch((cause: Error) => cause.message);
    await failing.clock.advance(5);
    await failing.wait(new Error("no rights"));
    await failing.clock.advance(100);
    expect(await opening).toBe("no rights");
    expect(failing.connections.map(({ done }) => done.at(-1))).toEqual(["closed", "closed"]);
  });

  test("is told of each message once, in their order, and removes those and no others", async () => {
    const { connections, clock, told, listener, opened, wait, onDelete } = mysqlServer();
    await opened();
    const own = connections[1]?.done as string[];
    await wait(WOKEN);
    await wait(RAN_OUT);
    expect([told, own.filter((sql) => sql.startsWith("DELETE"))]).toEqual([[], []]);
    await wait([[{ free: null }], [message(3), message(4, { kind: "other" }), message(7)]]);
    expect(told).toEqual([granted("3"), granted("7")]);
    expect(own.at(-2)).toBe("DELETE FROM `s`.message WHERE seq IN (3, 4, 7)");
    // Interrupted while it removes them: they are read again, and not told again.
    onDelete(() => Promise.reject(INTERRUPTED));
    await wait([[{ free: null }], [message(8)]]);
    onDelete(async () => []);
    await wait([[{ free: null }], [message(8), message(9)]]);
    await wait([[{ free: null }], [message(9), message(8)]]);
    expect(told.slice(2)).toEqual([granted("8"), granted("9")]);
    // What comes while it is closed is nobody's any more.
    listener.close();
    await listener.ended();
    expect([told.length, clock.pending]).toEqual([4, 0]);
  });

  test.each([
    ["breaks", new Error("cut")],
    ["got the lock, because the other one is gone", [[{ free: 1 }], [message(1)]]],
  ])("whose connection %s has both made anew, wakes all who wait, and tells again what it told", async (_, end) => {
    const { clock, state, connections, waits, told, listener, opened, wait } = mysqlServer();
    await opened();
    await wait([[{ free: null }], [message(5)]]);
    state.away = true;
    await wait(end);
    expect(connections.map(({ done }) => done.at(-1))).toEqual(["closed", "closed"]);
    const before = told.length;
    const asked = state.asked;
    // The first pause is 25 to 50 ms long, and none longer than a second.
    await clock.advance(24);
    expect(state.asked).toBe(asked);
    await clock.advance(26);
    expect(state.asked).toBe(asked + 1);
    await clock.advance(60_000);
    expect(state.asked - asked).toBeGreaterThan(30);
    expect(state.asked - asked).toBeLessThan(150);
    expect(told).toHaveLength(before);
    state.away = false;
    await clock.advance(2_000);
    expect(told.slice(before)).toEqual([{ kind: "wake" }]);
    expect([connections.length, waits.length]).toEqual([4, 1]);
    // Another server may give the same numbers to other messages.
    await wait([[{ free: null }], [message(5, granted("another"))]]);
    expect(told.at(-1)).toEqual(granted("another"));
    // The first pause is short again.
    await wait(new Error("cut"));
    await clock.advance(100);
    expect(connections).toHaveLength(6);
    listener.close();
    await listener.ended();
    // Each once.
    expect(connections.map(({ done }) => done.filter((one) => one === "closed").length)).toEqual([1, 1, 1, 1, 1, 1]);
  });

  test("is told of a grant before its message is removed, so that nobody waits for that", async () => {
    const { told, listener, opened, wait, onDelete } = mysqlServer();
    await opened();
    const order: unknown[] = [];
    told.push = (event) => {
      void Promise.resolve().then(() => order.push(event.kind));
      return 0;
    };
    onDelete(async () => order.push("removed"));
    await wait([[{ free: null }], [message(3)]]);
    expect(order).toEqual(["granted", "removed"]);
    listener.close();
  });

  test("that is closed while its connections are made anew leaves none of them open, at whatever step", async () => {
    for (let step = 0; step < 60; step += 1) {
      const { clock, connections, told, listener, opened, wait } = mysqlServer();
      await opened();
      await wait(new Error("cut"));
      const advanced = clock.advance(50);
      for (let n = 0; n < step; n += 1) await Promise.resolve();
      listener.close();
      const before = [...told];
      await advanced;
      await listener.ended();
      expect(
        connections.map(({ done }) => done.at(-1)),
        `step ${step}`,
      ).toEqual(connections.map(() => "closed"));
      expect([told, clock.pending], `step ${step}`).toEqual([before, 0]);
    }
  });

  test("that is closed while it connects again leaves nothing open, and tells nothing", async () => {
    const { clock, state, connections, told, listener, opened, wait } = mysqlServer();
    await opened();
    state.away = true;
    await wait(new Error("cut"));
    await clock.advance(10_000);
    state.away = false;
    listener.close();
    await clock.advance(60_000);
    await listener.ended();
    expect(connections.map(({ done }) => done.at(-1))).toEqual(connections.map(() => "closed"));
    expect([told, clock.pending]).toEqual([[], 0]);
  });
});

/** A database of MySQL's on a driver that answers what the test says. */
function mysqlDatabase(over: Record<string, unknown> = {}, settings: object = {}) {
  const clock = new FakeClock();
  const told: EngineEvent[] = [];
  const done: unknown[] = [];
  let unanswered = (): void => {};
  const state = {
    tooSmall: null as string | null,
    galera: "OFF",
    changed: { affectedRows: 0, insertId: 7 } as unknown,
    answer: "null",
    woke: 0,
  };
  const driver = {
    connections: 5,
    reserveListening: () => (done.push("reserve"), state.tooSmall),
    unreserveListening: () => done.push("unreserve"),
    close: () => done.push("close"),
    run: async (sql: string) => {
      if (sql.includes("VERSION()")) return [[{ version: "10.11.6-MariaDB", comment: "x" }]];
      if (sql.includes("autocommit")) return [[{ autocommit: "1", one: 1 }]];
      if (sql.includes("STATUS")) return [[{ name: "Slaves_connected", value: "0" }]];
      if (sql.includes("VARIABLES")) return [[{ name: "wsrep_on", value: state.galera }]];
      done.push(sql.replace(/\(.*/, ""));
      if (sql.includes("`inspect`")) return [[{ next: null }], []];
      return [[{ answer: Buffer.from(state.answer), woke: state.woke }]];
    },
    change: async (sql: string) => {
      done.push(/^[A-Z]+/.exec(sql.trim())?.[0]);
      if (state.changed instanceof Error) throw state.changed;
      return state.changed;
    },
    ...over,
  } as unknown as Mysql2Driver;
  const database = new MysqlDatabase({
    driver: (silent) => ((unanswered = silent), driver),
    settings: mysqlOptions({ schema: "s", clock, chance: new SeededChance(1), ...settings }),
    tell: (event) => told.push(event),
    end: async () => void done.push("end"),
  });
  return { clock, told, done, state, database, unanswered: () => unanswered() };
}

const CLAIM = {
  ...{ name: "n", id: "i", units: 1, capacity: 1, leaseMs: 9, waiterMs: 1, wait: true, owner: "{}", data: null },
  ...{ exact: false, atLeast: 0, reserve: 0, client: "c", listens: true },
};
const RELEASE = { name: "n", id: "i", tombstone: false, tombstoneMs: 1, to: null, client: "c" };
const HELD = { kind: "granted", leftMs: 9, token: 7, floor: 7 } as const;

describe("a database of MySQL's", () => {
  test("a plain statement decides where it changed a row; elsewhere, and where it is refused, the procedure does", async () => {
    const { done, state, database } = mysqlDatabase();
    await database.probe();
    const calls = (): unknown[] => done.splice(0);
    state.answer = JSON.stringify({ kind: "busy" });
    expect(await database.call("claim", CLAIM)).toEqual({ kind: "busy" });
    expect(calls()).toEqual([expect.not.stringContaining("CALL"), "CALL `s`.`claim`"]);
    state.changed = { affectedRows: 1, insertId: 7 };
    expect(await database.call("claim", CLAIM)).toEqual(HELD);
    expect(calls()).toHaveLength(1);
    expect(await database.call("release", RELEASE)).toBe("released");
    expect(calls()).toHaveLength(1);
    // Not alone any more: the procedure at once.
    state.answer = '"gone"';
    expect(await database.call("release", RELEASE)).toBe("gone");
    expect(calls()).toEqual(["CALL `s`.`release`"]);
    state.changed = Object.assign(new Error("denied"), { errno: 1142, sqlState: "42000" });
    state.answer = JSON.stringify(HELD);
    expect(await database.call("claim", CLAIM)).toEqual(HELD);
    expect(calls()).toHaveLength(2);
    // What may have been done is not done again.
    state.changed = new Error("cut");
    await expect(database.call("claim", CLAIM)).rejects.toThrow("cut");
    expect(calls()).toHaveLength(1);
    state.answer = JSON.stringify({ kind: "resized" });
    await database.call("resize", { name: "n", id: "i", units: 1 });
    expect(calls()).toEqual(["CALL `s`.`resize`"]);
  });

  test("after a release that let somebody in the next one of that name goes to the procedure at once", async () => {
    const { done, state, database } = mysqlDatabase();
    await database.probe();
    state.changed = { affectedRows: 1, insertId: 7 };
    state.answer = '"released"';
    for (const woke of [1, 0]) {
      state.woke = woke;
      await database.call("release", RELEASE);
      await database.call("claim", CLAIM);
      done.length = 0;
      await database.call("release", RELEASE);
      expect(done).toEqual([woke === 1 ? "CALL `s`.`release`" : expect.not.stringContaining("CALL")]);
    }
    expect(await database.call("inspect", { name: null, prefix: "", after: "", limit: 1 })).toEqual({
      states: [],
      next: null,
    });
  });

  test("one that can be woken is told of grants until it is closed, when its connections are given back to calls", async () => {
    const waits: ((cause: Error) => void)[] = [];
    const done: string[] = [];
    const run = (sql: string): Promise<unknown> =>
      sql.startsWith("CALL")
        ? new Promise((_, reject) => waits.push(reject))
        : Promise.resolve([[{ holder: null, got: 1 }]]);
    const close = (): void => {
      done.push("connection closed");
      for (const end of waits) end(new Error("given up"));
    };
    let made = Promise.resolve();
    const awake = mysqlDatabase({
      connection: () => made.then(() => ({ run, close })),
      run: async (sql: string) => {
        if (sql.includes("wake")) waits.shift()?.(INTERRUPTED);
        return [];
      },
      unreserveListening: () => done.push("unreserve"),
      close: () => done.push("close"),
    });
    const listening = awake.database.listen();
    await awake.clock.advance(1000);
    await listening;
    expect([awake.database.listens, awake.database.guarantees.wake, awake.told, done]).toEqual([true, "push", [], []]);
    // One that is being made anew is waited for: it must not come into a pool that has ended.
    let make = (): void => {};
    made = new Promise((resolve) => (make = resolve));
    waits.shift()?.(new Error("cut"));
    await awake.clock.advance(1000);
    expect(done.splice(0)).toEqual(["connection closed", "connection closed"]);
    const closed = awake.database.close();
    await awake.clock.advance(1000);
    expect(done).toEqual([]);
    make();
    await closed;
    expect(done).toEqual(["connection closed", "connection closed", "unreserve", "close"]);
  });

  test("what claims were answered in a batch decides for each of them how it is released", async () => {
    const { done, state, database } = mysqlDatabase();
    await database.probe();
    const queued = { kind: "queued", token: 8, nextMs: 1 };
    state.answer = JSON.stringify([HELD, "released", queued]);
    const requests = [
      ["a", "1", 1, null],
      ["b", "2", 0, null],
      ["c", "3", 1, null],
    ] as const;
    await database.call("batch", { requests, terms: [], tombstoneMs: 1, client: "c", listens: true });
    done.length = 0;
    state.changed = { affectedRows: 1, insertId: 7 };
    for (const [name, id] of [
      ["a", "1"],
      ["b", "2"],
      ["c", "3"],
    ] as const) {
      state.answer = '"released"';
      await database.call("release", { ...RELEASE, name, id });
    }
    expect(done).toEqual([expect.not.stringContaining("CALL"), "CALL `s`.`release`", "CALL `s`.`release`"]);
    await database.call("claim", { ...CLAIM, name: "a" });
    await database.call("claim", { ...CLAIM, name: "c" });
    expect(done.slice(3)).toEqual([expect.not.stringContaining("CALL"), "CALL `s`.`claim`"]);
  });

  test("a pool that is too small is refused; on Galera, and where a wait cannot be ended, it polls and says so", async () => {
    const small = mysqlDatabase();
    await small.database.probe();
    small.state.tooSmall = "it is too small";
    await expect(small.database.listen()).rejects.toBeInstanceOf(InvalidOptionError);
    await small.database.close();
    expect(small.done).toEqual(["reserve", "close", "end"]);
    const galera = mysqlDatabase();
    galera.state.galera = "ON";
    await galera.database.probe();
    await galera.database.listen();
    expect([galera.database.listens, galera.database.guarantees.wake]).toEqual([false, "poll"]);
    expect(galera.told).toEqual([
      { kind: "warning", message: expect.stringMatching(/^this is a Galera cluster.*Say wake: "poll"/) },
    ]);
    await galera.database.close();
    expect(galera.done).toEqual(["close", "end"]);
    const rows: Record<string, unknown> = { holder: null, got: 1, free: 0 };
    const connection = async () => ({ run: async () => [[rows], []], close: () => {} });
    const deaf = mysqlDatabase({ connection });
    await deaf.database.probe();
    const listening = deaf.database.listen();
    await deaf.clock.advance(60_000);
    await listening;
    expect(deaf.database.listens).toBe(false);
    expect(deaf.told).toEqual([{ kind: "warning", message: expect.stringMatching(/does not let a client end/) }]);
    expect(deaf.done.filter((one) => !String(one).startsWith("CALL"))).toEqual(["reserve", "unreserve"]);
    await deaf.database.close();
    expect(deaf.done.filter((one) => !String(one).startsWith("CALL"))).toEqual([
      "reserve",
      "unreserve",
      "close",
      "end",
    ]);
  });

  test("a silence is told once, and wakes who waits; after an answer the next one is told, too", async () => {
    const { told, state, database, unanswered } = mysqlDatabase();
    await database.probe();
    unanswered();
    unanswered();
    expect(told).toEqual([{ kind: "warning", message: expect.stringContaining("did not answer") }, { kind: "wake" }]);
    state.answer = '"gone"';
    await database.call("resize", { name: "n", id: "i", units: 1 });
    unanswered();
    expect(told).toHaveLength(4);
  });
});

/** A database of PostgreSQL's on a driver that answers what the test says. */
function postgresDatabase(settings: object = {}) {
  const clock = new FakeClock();
  const told: EngineEvent[] = [];
  const sent: PgQuery[] = [];
  const heard: string[] = [];
  const state = {
    processId: 7 as number | null,
    answers: true,
    fails: null as Error | null,
    senders: "0",
    fsync: "on",
  };
  let [unanswered, notify, end] = [(): void => {}, (() => {}) as OnNotification, (): void => {}];
  const usual = { recovery: "false", encoding: "UTF8", commit: "on", standbys: "" };
  const driver = {
    connections: 4,
    close: () => heard.push("close"),
    run: async (query: PgQuery) => {
      sent.push(query);
      if (state.fails !== null) throw state.fails;
      if (query.text.includes("pg_is_in_recovery")) return { rows: [{ ...usual, ...state }] };
      return { rows: [{ answer: '{"kind":"gone"}' }] };
    },
    listen: async (onNotification: OnNotification, onEnd: () => void): Promise<ListeningConnection> => {
      [notify, end] = [onNotification, onEnd];
      const run = async ({ text }: PgQuery) => {
        heard.push(text);
        if (!state.answers) throw new Error("no answer");
        return { rows: [{ pid: "7" }] };
      };
      return { run, processId: state.processId, close: () => void heard.push("closed") };
    },
  } as unknown as Driver;
  const database = new PostgresDatabase({
    driver: (silent) => ((unanswered = silent), driver),
    settings: postgresOptions({ schema: "s", clock, chance: new SeededChance(1), ...settings }),
    tell: (event) => told.push(event),
    end: null,
  });
  const parts = { unanswered: () => unanswered(), end: () => end() };
  return {
    clock,
    told,
    sent,
    heard,
    state,
    database,
    ...parts,
    notify: (channel: string, payload: string) => notify(channel, payload),
  };
}

describe("a database of PostgreSQL's", () => {
  test("statements are prepared once it has a connection of its own, and not before", async () => {
    const { sent, heard, database } = postgresDatabase();
    const resize = { name: "n", id: "i", units: 2 };
    expect(await database.call("resize", resize)).toEqual({ kind: "gone" });
    await database.listen();
    await database.call("resize", resize);
    expect(sent.map(({ name }) => name)).toEqual([undefined, "holdfast s resize true"]);
    expect(sent[1]?.values).toEqual(["n", "i", 2]);
    expect([database.listens, database.guarantees.wake, database.connections]).toEqual([true, "push", 4]);
    await database.close();
    expect(heard.slice(-3)).toEqual([`UNLISTEN "${database.client}"`, "closed", "close"]);
  });

  test("behind a pooler it polls, prepares nothing, and says so", async () => {
    const { told, sent, state, database } = postgresDatabase();
    state.processId = 8;
    await database.listen();
    await database.call("resize", { name: "n", id: "i", units: 2 });
    expect([database.listens, sent[0]?.name]).toEqual([false, undefined]);
    expect(told).toEqual([{ kind: "warning", message: expect.stringContaining("a pooler stands between") }]);
    expect(database.watchCells(() => {})).toBeNull();
  });

  test("a commit that need not wait is no durable one, whatever the server does for others", async () => {
    for (const [durable, fsync, survives] of [
      [true, "on", true],
      [false, "on", false],
      [true, "off", false],
    ] as const) {
      const { database, state } = postgresDatabase({ durable });
      state.fsync = fsync;
      expect(database.guarantees).toMatchObject({ survivesRestart: false, exclusion: "until-failover" });
      await database.probe();
      expect(database.guarantees.survivesRestart).toBe(survives);
    }
  });

  test("events of its own channel are told, cells of theirs, and nothing of others", async () => {
    const { clock, told, heard, database, notify } = postgresDatabase();
    await database.listen();
    const changed: unknown[] = [];
    const first = database.watchCells((name) => changed.push(name));
    const second = database.watchCells((name) => changed.push([name]));
    await clock.advance(0);
    // What changed until the server listened is told by nobody.
    expect(changed).toEqual([null, [null]]);
    expect(heard.slice(-2)).toEqual(['LISTEN """s"".cell"', 'LISTEN """s"".cell"']);
    const lost = { kind: "lost", name: "n", id: "i" };
    notify(database.client, JSON.stringify(lost));
    notify(database.client, '{"kind":"wake"}');
    notify("another", JSON.stringify(lost));
    expect(told).toEqual([lost]);
    notify('"s".cell', '"c"');
    notify("another", '"c"');
    expect(changed.slice(2)).toEqual(["c", ["c"]]);
    first?.();
    notify('"s".cell', "{}");
    expect(changed.slice(4)).toEqual([[null]]);
    expect(heard.at(-1)).toContain("LISTEN");
    expect(heard.at(-1)).not.toContain("UNLISTEN");
    second?.();
    expect(heard.at(-1)).toBe('UNLISTEN """s"".cell"');
  });

  test("after a reconnect who waits and who watches look, and what the guarantees depend on is read again", async () => {
    const { clock, told, state, database, end } = postgresDatabase();
    await database.probe();
    await database.listen();
    const changed: unknown[] = [];
    database.watchCells((name) => changed.push(name));
    await clock.advance(0);
    state.senders = "1";
    end();
    await clock.advance(1000);
    expect([told, changed]).toEqual([[{ kind: "wake" }], [null, null]]);
    expect(database.guarantees.exclusion).toBe("until-failover");
    state.fails = new Error("ECONNREFUSED");
    end();
    await clock.advance(1000);
    expect(told.slice(1)).toEqual([{ kind: "wake" }, { kind: "warning", message: "after a reconnect: ECONNREFUSED" }]);
    await database.close();
    expect(clock.pending).toBe(0);
  });

  test("a call that is not answered asks the connection that listens; one that is silent is told, and who waits looks", async () => {
    const { clock, told, heard, state, database, unanswered } = postgresDatabase();
    await database.listen();
    state.answers = false;
    heard.length = 0;
    unanswered();
    expect(heard).toEqual(["SELECT 1"]);
    await clock.advance(0);
    expect(told).toEqual([
      { kind: "warning", message: expect.stringContaining("did not answer within 5000 ms") },
      { kind: "warning", message: expect.stringContaining("listens for grants did not answer") },
      { kind: "wake" },
    ]);
    unanswered();
    expect(told).toHaveLength(3);
    await database.call("resize", { name: "n", id: "i", units: 2 });
    unanswered();
    expect(told).toHaveLength(4);
    await database.close();
  });
});
