import { describe, expect, test } from "vitest";
import { type Batched, Batches } from "../../src/sql/batches.js";
import type { AnswerOf, BatchRequest, ParametersOf, Terms } from "../../src/sql/verbs.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

/** Which claims and releases go together, when, and what becomes of their answers. Each call ends when the test says so. */

const LIMIT_MS = 5_000;
const REFUSED = new Error("refused");
const LOST = new Error("lost");

type Call = {
  /** What was asked for, by ids. */
  readonly ids: readonly string[];
  readonly requests: readonly BatchRequest[] | null;
  readonly terms: readonly Terms[];
  /** Answers each with its own id, or fails. */
  end(error?: Error, answers?: readonly unknown[]): Promise<void>;
};

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function rig(connections = 10) {
  const clock = new FakeClock();
  const calls: Call[] = [];
  const call = (ids: readonly string[], requests: readonly BatchRequest[] | null, terms: readonly Terms[]) =>
    new Promise<never>((resolve, reject) => {
      calls.push({
        ids,
        requests,
        terms,
        async end(error, answers = ids) {
          if (error === undefined) resolve((requests === null ? answers[0] : answers) as never);
          else reject(error);
          await settled();
        },
      });
    });
  const state = { connections };
  const batches = new Batches({
    clock,
    limitMs: LIMIT_MS,
    connections: () => state.connections,
    alone: (_, { id }) => call([id], null, []),
    together: ({ requests, terms }) =>
      call(
        requests.map(([, id]) => id),
        requests,
        terms,
      ),
    unknown: (cause) => (cause === REFUSED ? null : new Error((cause as Error).message)),
  });
  const outcomes: Record<string, unknown> = {};
  const add = <V extends Batched>(verb: V, parameters: ParametersOf<V>): void => {
    const note = (outcome: AnswerOf<V>): unknown => (outcomes[parameters.id] = outcome);
    batches.add(verb, parameters).then(note, note);
  };
  const claim = (name: string, id = name, over: Partial<ParametersOf<"claim">> = {}): void =>
    add("claim", {
      ...{ name, id, units: 1, capacity: 1, leaseMs: 1, waiterMs: 1, wait: true, owner: "{}", data: null },
      ...{ exact: false, atLeast: 0, reserve: 0, client: "c", listens: true, ...over },
    });
  const release = (name: string, id: string, to: string | null = null, tombstone = false): void =>
    add("release", { name, id, tombstone, tombstoneMs: 1, to, client: "c" });
  /** Those that have not been looked at. */
  let seen = 0;
  const next = async (): Promise<readonly Call[]> => {
    await settled();
    const fresh = calls.slice(seen);
    seen = calls.length;
    return fresh;
  };
  return { batches, clock, state, claim, release, next, outcomes };
}

const range = (to: number, from = 0): string[] =>
  Array.from({ length: to - from }, (_, n) => String(from + n).padStart(3, "0"));
const idsOf = (calls: readonly Call[]): unknown => calls.map(({ ids }) => ids);

describe("what goes together", () => {
  test("one alone goes by itself, what is asked in one turn goes together, in the order of names", async () => {
    const { claim, next, clock, outcomes } = rig();
    claim("a");
    const [alone] = await next();
    expect(alone).toMatchObject({ ids: ["a"], requests: null });
    await alone?.end();
    expect(outcomes).toEqual({ a: "a" });
    for (const name of ["c", "é", "b", "B"]) claim(name);
    // Whoever goes on in this turn joins.
    await Promise.resolve().then(() => claim("b", "b again"));
    const [together, ...others] = await next();
    expect(others).toEqual([]);
    expect(together?.ids).toEqual(["B", "b", "b again", "c", "é"]);
    expect(together?.requests).not.toBeNull();
    await together?.end();
    expect(outcomes).toEqual({ a: "a", B: "B", b: "b", "b again": "b again", c: "c", é: "é" });
    expect(clock.pending).toBe(0);
  });

  test("32 in a call, two calls at once, and the others when one of them has ended", async () => {
    const { claim, next, clock } = rig();
    await clock.advance(1000);
    for (const name of range(100)) claim(name);
    const [one, two, ...others] = await next();
    expect(others).toEqual([]);
    expect([one?.ids, two?.ids]).toEqual([range(32), range(64, 32)]);
    await two?.end();
    const third = await next();
    expect(idsOf(third)).toEqual([range(96, 64)]);
    await one?.end();
    expect(idsOf(await next())).toEqual([range(100, 96)]);
  });

  test.each([
    [0, 1],
    [1, 1],
    [2, 1],
    [3, 2],
  ])("with %i connections there are %i calls at once, also when they are slow", async (connections, most) => {
    const { claim, next, clock, state } = rig();
    state.connections = connections;
    for (const name of range(200)) claim(name);
    expect(await next()).toHaveLength(most);
    await clock.advance(1000);
    claim("more");
    expect(await next()).toHaveLength(0);
  });

  test("a name that has a request under way is passed over, and keeps its order", async () => {
    const { claim, release, next } = rig();
    claim("a", "a1");
    const [first] = await next();
    for (const id of ["a2", "a3"]) claim("a", id);
    expect(await next()).toEqual([]);
    claim("b");
    release("a", "a1");
    const [second] = await next();
    expect(second?.ids).toEqual(["b"]);
    claim("c");
    await second?.end();
    const [third] = await next();
    expect(third?.ids).toEqual(["c"]);
    await first?.end();
    expect(idsOf(await next())).toEqual([["a2", "a3", "a1"]]);
  });

  test("a name keeps its order also where more wait than a call carries", async () => {
    const { claim, next } = rig();
    claim("a", "a1");
    const [first] = await next();
    claim("a", "a2");
    for (const name of range(40)) claim(name);
    claim("a", "a3");
    const [second] = await next();
    expect(second?.ids).toEqual(range(32));
    await first?.end();
    expect(idsOf(await next())).toEqual([[...range(40, 32), "a2", "a3"]]);
  });

  test("what claims have in common is said once, and a release says what follows it", async () => {
    const { claim, release, next } = rig();
    claim("a");
    claim("b", "b", { data: "1" });
    claim("c");
    const different: Partial<ParametersOf<"claim">>[] = [
      { units: 2 },
      { capacity: 2 },
      { leaseMs: 2 },
      { waiterMs: 2 },
      { wait: false },
      { owner: "[]" },
      { exact: true },
      { atLeast: 1 },
      { reserve: 1 },
    ];
    for (const [n, over] of different.entries()) claim("d", `d${n}`, over);
    release("e", "e1", "e2");
    release("e", "e2", "e3");
    release("e", "e3", "e4", true);
    release("e", "e4", "f1");
    release("f", "f1", "f3");
    release("f", "f2", "f3");
    claim("f", "f3");
    const [call] = await next();
    expect(call?.terms).toHaveLength(2 + different.length);
    expect(call?.terms.slice(0, 2)).toEqual([
      [1, 1, 1, 1, true, "{}", null, false, 0, 0],
      [1, 1, 1, 1, true, "{}", "1", false, 0, 0],
    ]);
    expect(call?.requests?.map(([, id, terms, to]) => [id, terms, to])).toEqual([
      ["a", 1, null],
      ["b", 2, null],
      ["c", 1, null],
      ...different.map((_, n) => [`d${n}`, 3 + n, null]),
      ["e1", -2, "e2"],
      ["e2", -2, "e3"],
      ["e3", -1, "e4"],
      ["e4", 0, "f1"],
      ["f1", 0, "f3"],
      ["f2", 0, "f3"],
      ["f3", 1, null],
    ]);
  });
});

describe("what takes long", () => {
  test("leaves its place to others after a moment, without anybody asking again", async () => {
    const { claim, next, clock } = rig();
    claim("a");
    await next();
    claim("b");
    expect(idsOf(await next())).toEqual([["b"]]);
    claim("c");
    await clock.advance(249);
    expect(await next()).toEqual([]);
    await clock.advance(1);
    expect(idsOf(await next())).toEqual([["c"]]);
  });

  test("what waited for so long that nobody waits for it is not sent, and told", async () => {
    const { claim, next, clock, outcomes } = rig(2);
    claim("a");
    const [first] = await next();
    claim("b");
    await clock.advance(LIMIT_MS - 500);
    claim("c");
    expect(outcomes).toEqual({});
    const late = new Error("the calls before it took too long");
    await clock.advance(500);
    expect(outcomes).toEqual({ b: late });
    await clock.advance(LIMIT_MS);
    expect(outcomes).toEqual({ b: late, c: late });
    claim("d");
    await first?.end();
    expect(idsOf(await next())).toEqual([["d"]]);
  });

  test("leaves no timer behind", async () => {
    const { claim, next, clock, batches } = rig(1);
    claim("a");
    const [call] = await next();
    claim("b");
    await settled();
    batches.close();
    await call?.end();
    expect(clock.pending).toBe(0);
    expect(await next()).toEqual([]);
  });
});

describe("what fails", () => {
  test("together is made again one by one: an error is its own, names go side by side, and each keeps its order", async () => {
    const { claim, next, outcomes } = rig();
    for (const id of ["b1", "b2", "b3"]) claim("b", id);
    claim("a");
    claim("c");
    const [batch] = await next();
    await batch?.end(REFUSED);
    const [a, b1, c] = await next();
    expect([a?.ids, b1?.ids, c?.ids]).toEqual([["a"], ["b1"], ["c"]]);
    // While b waits, others go on: also those of names that have ended.
    await a?.end();
    claim("a", "a2");
    claim("b", "b4");
    expect(idsOf(await next())).toEqual([["a2"]]);
    await b1?.end(LOST);
    const [b2] = await next();
    expect(b2?.ids).toEqual(["b2"]);
    await b2?.end();
    const [b3] = await next();
    await b3?.end();
    await c?.end();
    expect(idsOf(await next())).toEqual([["b4"]]);
    expect(outcomes).toEqual({ a: "a", b1: LOST, b2: "b2", b3: "b3", c: "c" });
  });

  test("and may have been done is unknown for each, by an error of its own, and the names are free again", async () => {
    const { claim, next, outcomes } = rig();
    claim("a");
    claim("b");
    const [batch] = await next();
    claim("a", "a again");
    await batch?.end(LOST);
    expect(outcomes).toEqual({ a: LOST, b: LOST });
    expect(outcomes.a).not.toBe(outcomes.b);
    expect(idsOf(await next())).toEqual([["a again"]]);
  });

  test("an answer that is left out is an error, and the others have theirs", async () => {
    const { claim, next, outcomes } = rig();
    claim("a");
    claim("b");
    const [batch] = await next();
    await batch?.end(undefined, ["only one"]);
    expect(outcomes).toEqual({ a: "only one", b: new Error("the lock table left an answer out") });
    claim("b", "b again");
    expect(idsOf(await next())).toEqual([["b again"]]);
  });
});

describe("when it is closed", () => {
  const CLOSED = expect.objectContaining({ code: "HOLDFAST_CLOSED" });

  test("what waits is not sent, and what is under way is answered", async () => {
    const { claim, release, next, batches, outcomes } = rig(1);
    claim("a");
    const [call] = await next();
    claim("b");
    release("c", "c");
    await settled();
    batches.close();
    await call?.end();
    expect(outcomes).toEqual({ a: "a", b: CLOSED, c: CLOSED });
    expect(await next()).toEqual([]);
  });

  test("what was asked in this very turn is not sent", async () => {
    const { claim, next, batches, outcomes } = rig();
    claim("a");
    batches.close();
    expect(await next()).toEqual([]);
    expect(outcomes).toEqual({ a: CLOSED });
  });

  test("what the server refused together is not made again", async () => {
    const { claim, next, batches, outcomes } = rig();
    claim("a");
    claim("b");
    const [batch] = await next();
    batches.close();
    await batch?.end(REFUSED);
    expect(await next()).toEqual([]);
    expect(outcomes).toEqual({ a: CLOSED, b: CLOSED });
  });
});
