import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { UnsupportedError } from "../../src/core/errors.js";
import type { Locks } from "../../src/locks.js";
import { checkHistory, type History } from "../../src/testing/history.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { LONG, PLACES, type Place } from "../servers/places.js";
import { quickFolder, until } from "../servers/process.js";
import { fleet, Member } from "./fleet.js";
import { Terms } from "./terms.js";
import { writerWaits } from "./writer-waits.js";

/** The long runs are for the figures of a closing note. */
const PROCESSES = LONG ? 8 : 4;
const CONTEND_MS = LONG ? 30_000 : 1000;
const RINGS = LONG ? 100 : 4;
const QUIET_RUNS = LONG ? 1000 : 8;
const KILLED = LONG ? 5 : 1;
const LEADERS = LONG ? 200 : 3;
const LIMIT = { timeout: LONG ? 1_200_000 : 120_000 };

describe.each(Object.entries(PLACES))("%s", (kind, start) => {
  let place: Place;
  beforeAll(async () => {
    place = await start();
  }, 120_000);
  afterAll(() => place.stop());

  async function open(): Promise<Locks> {
    const locks = await connect(place.url, place.options);
    onTestFinished(() => locks.close());
    return locks;
  }

  test("processes that are random readers, writers and permit takers break no rule", LIMIT, async () => {
    const members = await fleet(PROCESSES, place);
    const { guarantees } = await open();
    const task = { stem: "contend", stepMs: 200, forMs: CONTEND_MS };
    const histories = await Promise.all(
      members.map((member, seed) => member.ask<History>("contend", { ...task, seed }, CONTEND_MS + 90_000)),
    );
    const merged: History = { attempts: [], holds: [], writes: [], pauses: [] };
    histories.forEach(({ attempts, holds, pauses }, client) => {
      merged.attempts.push(...attempts.map((attempt) => ({ ...attempt, client })));
      merged.holds.push(...holds.map((hold) => ({ ...hold, client })));
      merged.pauses.push(...pauses.map((one) => ({ ...one, client })));
    });
    console.log(`${kind}: ${merged.holds.length} holds of ${PROCESSES} processes in ${CONTEND_MS} ms`);
    // Without a queue readers who ask at the same moment may share a token.
    const rules = { order: guarantees.order, ties: guarantees.order !== "fifo", lateMs: 1000 };
    expect(checkHistory(merged, rules)).toEqual([]);
    expect(merged.holds.length).toBeGreaterThan(10);
  });

  test("random deadlocks of processes each have one victim; without a cycle there is none", LIMIT, async () => {
    const locks = await open();
    if (locks.guarantees.order === "none") {
      const asked = locks.mutex("nobody waits here").acquire({ detectDeadlockAfterMs: 200 });
      await expect(asked).rejects.toThrow(UnsupportedError);
      return;
    }
    const members = await fleet(PROCESSES, place, { detectDeadlockAfterMs: 200 });
    const folder = mkdtempSync(join(quickFolder(), "holdfast-meeting-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const chance = new SeededChance(57);
    const some = (size: number): Member[] => {
      const first = chance.between(0, PROCESSES - 1);
      return Array.from({ length: size }, (_, n) => members[(first + n) % PROCESSES] as Member);
    };
    const ring = (run: string): Promise<string[]> => {
      const size = chance.between(2, PROCESSES);
      const input = (n: number) => ({ first: `${run}/${n}`, second: `${run}/${(n + 1) % size}` });
      const nest = { folder, run, parties: size, holdMs: 1 };
      return Promise.all(some(size).map((member, n) => member.ask<string>("nest", { ...nest, ...input(n) })));
    };
    /** A chain that ends at somebody who holds for longer than it takes to look. */
    const chain = (run: string): Promise<string[]> => {
      const size = chance.between(2, 4);
      const nest = { folder, run, parties: size, holdMs: 300 };
      const input = (n: number) => ({ first: `${run}/${n}`, second: `${run}/${n + 1}` });
      return Promise.all(some(size).map((member, n) => member.ask<string>("nest", { ...nest, ...input(n) })));
    };
    /** `pitfalls.md` 57. */
    const apart = (run: string): Promise<string[]> => {
      const names = (n: number) => ({ first: `${run}/${n}`, second: `${run}/${1 - n}` });
      const input = (n: number) => ({ ...names(n), folder, run, parties: 2, holdMs: 400 });
      return Promise.all(some(2).map((member, n) => member.ask<string>("apart", input(n))));
    };
    const victims = (outcomes: readonly string[]): string[] => outcomes.filter((one) => one.startsWith("victim"));

    const counts: number[] = [];
    for (let at = 0; at < RINGS; at += 4) {
      const runs = Array.from({ length: Math.min(4, RINGS - at) }, (_, n) => ring(`ring ${at + n}`));
      for (const outcomes of await Promise.all(runs)) counts.push(victims(outcomes).length);
    }
    expect(counts).toEqual(Array.from({ length: RINGS }, () => 1));
    const wrong: string[] = [];
    for (let at = 0; at < QUIET_RUNS; at += 12) {
      const runs = Array.from({ length: Math.min(12, QUIET_RUNS - at) }, (_, n) =>
        n % 2 ? chain(`chain ${at + n}`) : apart(`apart ${at + n}`),
      );
      for (const outcomes of await Promise.all(runs)) wrong.push(...victims(outcomes));
    }
    console.log(
      `${kind}: ${RINGS} deadlocks, one victim each; ${QUIET_RUNS} runs without one, ${wrong.length} victims`,
    );
    expect(wrong).toEqual([]);
  });

  test("pitfall 43: leaders change by kill and pause, one at a time, and observers see every term", LIMIT, async () => {
    const folder = mkdtempSync(join(quickFolder(), "holdfast-resource-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const resource = join(folder, "resource.db");
    const terms = new Terms();
    const enter = async (): Promise<void> => {
      const member = await new Member(place).ready();
      member.begin("lead", { name: "election", leaseMs: 1200, resource });
      terms.members.push(member);
    };
    const locks = await open();
    const seen: number[] = [];
    const observing = (async () => {
      for await (const { token } of locks.election("election").observe()) seen.push(token);
    })();
    const observes = locks.guarantees.order === "fifo";
    if (observes) observing.catch(() => {});
    else await expect(observing).rejects.toThrow(UnsupportedError);
    await Promise.all([enter(), enter(), enter()]);
    const chance = new SeededChance(43);
    for (let change = 0, last = 0; change < LEADERS; change += 1) {
      const leader = await terms.after(last);
      last = leader.token;
      await sleep(chance.between(0, 100));
      // At least one of each kind, also in a short run.
      if (change === 0 || chance.chance(0.5)) {
        await terms.kill(leader);
        await enter();
      } else {
        await terms.pause(leader);
      }
    }
    const { token: newest } = await terms.after(0);
    if (observes) await until("the last term is observed", () => newest <= (seen.at(-1) ?? 0));
    const reader = await new Member(place).ready();
    const verdict = terms.judge(await reader.ask("accepted", { resource }));
    console.log(`${kind}: ${verdict.figures}, ${observes ? `${seen.length} terms observed` : "not observable"}`);
    expect(verdict.violations).toEqual([]);
    expect(verdict.refused, "a leader that was paused tried again, and was refused").toBeGreaterThan(0);
    if (!observes) return;
    expect(seen).toEqual(seen.toSorted((one, two) => one - two));
    const unseen = terms.tokens().filter((token) => token <= newest && !seen.includes(token));
    expect(unseen).toEqual([]);
  });

  const killedJob = async (): Promise<void> => {
    const locks = await open();
    const killed = async (name: string, atLeastForMs: number) => {
      const options = { atLeastForMs, leaseMs: 500 };
      const [member] = await fleet(1, place);
      member?.begin("job", { name, options });
      await until("it runs", () => member?.lines.length === 2);
      member?.signal("SIGKILL");
      await until("its lock is free", async () => !(await locks.mutex(name).isHeld()));
      return locks.job(name, options);
    };
    expect(await (await killed("job", 3_600_000)).run(() => 1)).toEqual({ ran: false });
    const short = await killed("short job", 1000);
    await until("the time is over", async () => (await short.run(() => 1)).ran);
  };
  // Where it is hardest: this store frees what a dead process held at once.
  if (kind === "sqlite") test("at-least-for outlives a process that is killed", LIMIT, killedJob);

  test("a killed permit holder frees its permits with its lease", LIMIT, async () => {
    const locks = await open();
    // Longer than what any of these stores rounds a lease up to; on SQLite so long that it cannot be the lease which ends.
    const leaseMs = kind === "sqlite" ? 3_600_000 : 3000;
    const permits = locks.semaphore("permits", 3);
    const freed: number[] = [];
    for (let n = 0; n < KILLED; n += 1) {
      const [member] = await fleet(1, place);
      member?.begin("permit", { name: "permits", leaseMs });
      await until("it holds", async () => (await permits.available()) === 0);
      const killedAt = performance.now();
      member?.signal("SIGKILL");
      await permits.using({ permits: 3 }, () => {});
      freed.push(Math.round(performance.now() - killedAt));
    }
    const session = place.options?.sessionTimeoutMs;
    const limit = session === undefined ? `lease ${leaseMs} ms` : `session ${session} ms`;
    console.log(`${kind}: permits of a killed process free after ${freed.join(", ")} ms (${limit})`);
  });

  test("a writer among a constant stream of readers waits for one read phase", LIMIT, async () => {
    const locks = await open();
    const { waits, overtook, tried, text } = await writerWaits(locks, LONG ? 20 : 3);
    console.log(`${kind}: ${text}`);
    // Without a queue a writer has to find a gap; a claim that meets a hand-over at a quorum stands in line a moment later.
    if (locks.guarantees.order !== "fifo") return;
    expect(waits).toHaveLength(tried);
    expect(overtook, "readers who asked when it stood in the queue, and came in before it").toBe(0);
  });
});
