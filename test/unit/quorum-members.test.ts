import { expect, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { type QuorumMember, quorumEngine } from "../../src/engines/quorum/index.js";
import { Member } from "../../src/engines/quorum/member.js";
import { checkOptions } from "../../src/engines/quorum/options.js";
import { Retries } from "../../src/engines/quorum/retry.js";
import { connect } from "../../src/index.js";
import type { Locks } from "../../src/locks.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { type Hooks, intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** How the members of a quorum come and go, and what is said of it. */

const away = (): EngineUnavailableError => new EngineUnavailableError("redis", "connecting", new Error("ECONNREFUSED"));
const refusal = (): EngineRefusedError => new EngineRefusedError("redis", "Check it.", new Error("WRONGPASS"));

/** Locks on a quorum by one fake clock, and all that they are warned of from the first moment on. */
async function locksOn(
  members: (clock: FakeClock) => readonly QuorumMember[],
): Promise<{ readonly clock: FakeClock; readonly locks: Locks; readonly warnings: string[] }> {
  const clock = new FakeClock();
  const locks = await connect(await quorumEngine(members(clock), { clock }), { clock });
  const warnings: string[] = [];
  locks.on("warning", ({ message }) => warnings.push(message));
  await settle();
  return { clock, locks, warnings };
}

const store = (clock: FakeClock, hooks: Hooks = {}): Engine => intercept(memoryEngine(memoryStore(clock)), hooks);

/** Who keeps the order is decided by what the servers call themselves. */
const called = (server: string, engine: Engine): Engine => ({ ...engine, serverInfo: async () => ({ server }) });

/** A third member that says what `say` says whenever it is opened. */
const withThird =
  (say: (clock: FakeClock) => Promise<Engine>, second: Hooks = {}) =>
  (clock: FakeClock): readonly QuorumMember[] => [
    { name: "a", engine: store(clock) },
    { name: "b", engine: store(clock, second) },
    { name: "c", open: () => say(clock) },
  ];

test("an even number of members, and one that is away, are told to whoever listens after connecting", async () => {
  const { clock, locks, warnings } = await locksOn((time) => [
    ...withThird(() => Promise.reject(away()))(time),
    { name: "d", engine: store(time) },
  ]);
  expect(warnings).toEqual([
    "a quorum of 4 members survives 1 failures, as one of 3 does: use an odd number",
    "quorum member c is away: ECONNREFUSED",
  ]);
  await clock.advance(60_000);
  expect(warnings, "and not again and again").toHaveLength(2);
  await locks.close();
});

test("a member that refuses for good after it was away: said once, asked seldom, and its reason is in the votes", async () => {
  let opened = 0;
  let allowed = false;
  const say = async (clock: FakeClock): Promise<Engine> => {
    opened += 1;
    if (allowed) return store(clock);
    throw opened === 1 ? away() : refusal();
  };
  let reached = true;
  const second: Hooks = { claim: (call) => (reached ? call() : Promise.reject(new Error("cut off"))) };
  const { clock, locks, warnings } = await locksOn(withThird(say, second));
  await clock.advance(120_000);
  expect(warnings.slice(1)).toEqual([expect.stringMatching(/^quorum member c has no vote: .*WRONGPASS/)]);
  expect(opened, "with a pause that grows to seconds").toBeLessThan(60);
  expect(opened).toBeGreaterThan(20);

  // Two of three are enough for a lock.
  await (await locks.mutex("m").acquire()).release();
  reached = false;
  const failing = locks.mutex("m").acquire({ waitMs: 0 });
  await expect(failing).rejects.toMatchObject({
    cause: {
      votes: expect.arrayContaining([
        expect.objectContaining({ member: "c", vote: expect.stringContaining("WRONGPASS") }),
      ]),
    },
  });
  reached = true;

  // Whoever mends the password need not start the program again.
  allowed = true;
  await clock.advance(10_000);
  expect(warnings).toContain("quorum member c is here now");
  await locks.close();
});

test("a member that goes silent is said to be away once, and votes again when it answers", async () => {
  let silent = false;
  let votes = 0;
  const hooks: Hooks = {
    claim: (call) => {
      if (silent) return new Promise(() => {});
      votes += 1;
      return call();
    },
    release: (call) => (silent ? new Promise(() => {}) : call()),
  };
  const { clock, locks, warnings } = await locksOn((time) =>
    ["a", "b", "c"].map((name) => ({ name, engine: called(name, store(time, name === "c" ? hooks : {})) })),
  );
  const turn = async (): Promise<void> => {
    await (await locks.mutex("m").acquire()).release();
    await clock.advance(100);
  };
  await turn();
  expect(votes).toBe(1);
  silent = true;
  for (let n = 0; n < 60; n += 1) await turn();
  expect(warnings).toEqual([expect.stringMatching(/^quorum member c is away: /)]);
  silent = false;
  // What it has not answered by then is given up.
  await clock.advance(6_000);
  await turn();
  expect(votes).toBe(2);
  expect(warnings.at(-1)).toBe("quorum member c answers again");
  await clock.advance(60_000);
  await locks.close();
});

test("a member that lost its vote, got it back and lost it again for the same reason: told each time it loses it, once", async () => {
  let refused = false;
  let wake = (): void => {};
  const engine: Engine = {
    ...intercept(memoryEngine(), {}),
    listen: (listener) => {
      wake = () => listener({ kind: "wake" });
      return () => {};
    },
  };
  const told: string[] = [];
  const member = new Member(
    0,
    { name: "a", source: engine },
    {
      clock: new FakeClock(),
      chance: new SeededChance(1),
      admit: async () => {
        if (refused) throw refusal();
      },
      aboutTurn: () => false,
      wentAway: () => {},
      emit: (event) => void (event.kind === "warning" && told.push(event.message)),
    },
  );
  await member.open();
  for (refused of [true, true, false, true, true]) {
    wake();
    await settle();
  }
  expect(told).toHaveLength(2);
  await member.close();
});

test("a member that is away gets one call after the other, and all that are left as soon as it answers one", async () => {
  const clock = new FakeClock();
  const retries = new Retries(checkOptions({ clock, chance: new SeededChance(1) }));
  const member = { ask: (run: () => Promise<unknown>) => run(), noteOutcome: () => {} } as unknown as Member;
  const sent: string[] = [];
  let isAway = true;
  const call = (name: string) => {
    let answered = false;
    const send = async (): Promise<void> => {
      sent.push(name);
      if (isAway) throw away();
      answered = true;
    };
    return retries.run(member, { send, unanswered: () => !answered, until: Infinity });
  };
  const done = Promise.all(["a", "b", "c"].map(call));
  for (let tries = 0; tries < 10_000 && sent.length < 4; tries += 1) await clock.advance(1);
  expect(sent).toEqual(["a", "b", "c", "a"]);
  isAway = false;
  for (let tries = 0; tries < 10_000 && sent.length === 4; tries += 1) await clock.advance(1);
  expect(sent.slice(4)).toEqual(["b", "c", "a"]);
  await done;
  await clock.advance(10_000);
  expect(clock.pending, "nothing is left to be sent").toBe(0);
});
