import { expect, test } from "vitest";
import { CallTimeouts } from "../../src/engine-kit/call-timeouts.js";
import { Silence } from "../../src/engine-kit/silence.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

/** What is silent, by a fake clock: how often it is replaced, and what is told. */
function rig(replace: (() => Promise<void>) | null) {
  const clock = new FakeClock();
  const told: string[] = [];
  const warn = (message: string): void => void told.push(message);
  const silence = new Silence({ clock, limitMs: 1000, what: "The connection", replace, warn });
  return { clock, told, silence };
}

test("a call without an answer replaces the connection once, however many calls there were, and a warning says so", async () => {
  let replaced = 0;
  const { clock, told, silence } = rig(async () => void (replaced += 1));
  for (let n = 0; n < 5; n += 1) silence.unanswered();
  await clock.advance(0);
  expect(replaced).toBe(1);
  expect(told).toEqual(["The connection said nothing for 1000 ms and was replaced."]);
});

test("while a replacement is under way there is no other, however long it takes", async () => {
  let begun = 0;
  let done = (): void => {};
  const { clock, told, silence } = rig(() => {
    begun += 1;
    return new Promise((resolve) => (done = resolve));
  });
  for (let n = 0; n < 50; n += 1) {
    silence.unanswered();
    await clock.advance(1000);
  }
  expect(begun).toBe(1);
  done();
  await clock.advance(0);
  expect(told).toHaveLength(1);
  silence.unanswered();
  expect(begun).toBe(2);
});

test("what cannot be replaced now is tried again at the next call without an answer, and nothing is told", async () => {
  let tried = 0;
  const { clock, told, silence } = rig(async () => {
    tried += 1;
    if (tried < 3) throw new Error("the store is away");
  });
  for (let n = 0; n < 10 && told.length === 0; n += 1) {
    silence.unanswered();
    await clock.advance(1000);
  }
  expect(tried).toBe(3);
  expect(told).toHaveLength(1);
});

test("while each new connection is silent too, the pauses between replacements grow, up to a limit; then it starts anew", async () => {
  const at: number[] = [];
  const { clock, silence } = rig(async () => void at.push(clock.now()));
  for (let second = 0; second < 100; second += 1) {
    silence.unanswered();
    await clock.advance(1000);
  }
  expect(at.map((time, n) => time - (at[n - 1] ?? 0))).toEqual([
    0, 1000, 2000, 4000, 8000, 16_000, 16_000, 16_000, 16_000, 16_000,
  ]);
  await clock.advance(60_000);
  silence.unanswered();
  await clock.advance(1000);
  silence.unanswered();
  expect((at.at(-1) ?? 0) - (at.at(-2) ?? 0)).toBe(1000);
});

test("a connection that is not ours is only told of", async () => {
  const { clock, told, silence } = rig(null);
  silence.unanswered();
  silence.unanswered();
  await clock.advance(0);
  expect(told).toEqual([
    expect.stringMatching(/^The connection said nothing for 1000 ms\. Only its owner can replace it/),
  ]);
});

test("answers that came while the process stood still are read before anything is called silent", async () => {
  const clock = new FakeClock();
  let silent = 0;
  const deadlines = new CallTimeouts(clock, 1000, () => void (silent += 1));
  const never = deadlines.limit(new Promise(() => {})).catch((error: Error) => error.message);
  const answered = deadlines.limit(new Promise((resolve) => clock.after(1000, () => resolve("answered"))));
  // The timers of the limit run before what arrived is read, which here is a timer too.
  clock.stall(5000);
  await clock.advance(0);
  expect(await answered).toBe("answered");
  expect(await never).toBe("no answer within 1000 ms");
  expect(silent).toBe(1);
  expect(clock.pending).toBe(0);
});

test("a call is told once: its failure after the limit counts no more, and its answer goes to whoever cleans up", async () => {
  const clock = new FakeClock();
  const limits = new CallTimeouts(clock, 1000);
  const told: unknown[] = [];
  const after = (run: (done: (answer: string) => void, fail: (cause: Error) => void) => void): Promise<string> =>
    new Promise((resolve, reject) => clock.after(2000, () => run(resolve, reject)));
  const failed = (cause: unknown): void => void told.push((cause as Error).message);
  const answered = (answer: string): void => void told.push(answer);
  limits.watch(
    after((done) => done("one")),
    answered,
    failed,
    (late) => told.push(`late ${late}`),
  );
  limits.watch(
    after((_, fail) => fail(new Error("two"))),
    answered,
    failed,
  );
  limits.watch(Promise.resolve("three"), answered, failed);
  await clock.advance(5000);
  expect(told).toEqual(["three", "no answer within 1000 ms", "no answer within 1000 ms", "late one"]);
});

/** Calls with a limit of a second, each answered when the test says so, and how often something was called silent. */
function timeouts() {
  const clock = new FakeClock();
  let silent = 0;
  const all = new CallTimeouts(clock, 1000, () => void (silent += 1));
  const call = () => {
    let answer = (_text: string): void => {};
    const ended = all
      .limit(new Promise<string>((resolve) => (answer = resolve)))
      .catch((error: Error) => error.message);
    return { answer, ended };
  };
  return { clock, call, silent: () => silent };
}

test("a connection that answers what was asked before is slow, and not silent: its calls are waited for, and nothing is replaced", async () => {
  const { clock, call, silent } = timeouts();
  const calls = Array.from({ length: 6 }, call);
  for (const { answer } of calls) {
    await clock.advance(600);
    answer("answered");
  }
  expect(await Promise.all(calls.map(({ ended }) => ended))).toEqual(calls.map(() => "answered"));
  expect(silent()).toBe(0);
  expect(clock.pending).toBeLessThanOrEqual(1);
});

test("a slow connection that goes silent is called so a limit after its last answer", async () => {
  const { clock, call, silent } = timeouts();
  const [first, second] = [call(), call()];
  await clock.advance(900);
  first.answer("answered");
  await clock.advance(999);
  expect(silent()).toBe(0);
  await clock.advance(2);
  expect(silent()).toBe(1);
  expect(await second.ended).toBe("no answer within 1000 ms");
});

test("a call that a later one overtook is lost, or its own connection is silent: it has one limit", async () => {
  const { clock, call, silent } = timeouts();
  const [first, second] = [call(), call()];
  await clock.advance(900);
  second.answer("answered");
  await clock.advance(101);
  expect(silent()).toBe(1);
  expect(await first.ended).toBe("no answer within 1000 ms");
});

test("however slow, a call ends after four limits, and the connection stays", async () => {
  const { clock, call, silent } = timeouts();
  const calls = Array.from({ length: 20 }, call);
  for (const { answer } of calls.slice(0, 8)) {
    await clock.advance(510);
    answer("answered");
  }
  expect(await Promise.all(calls.map(({ ended }) => ended))).toEqual(
    calls.map((_, n) => (n < 7 ? "answered" : "no answer within 1000 ms")),
  );
  expect(silent()).toBe(0);
});

test("a client that finds no connection by itself for twice the limit is replaced; one that was there in between is not", async () => {
  let replaced = 0;
  const { clock, silence } = rig(async () => void (replaced += 1));
  const refuseFor = async (ms: number): Promise<void> => {
    for (let at = 0; at <= ms; at += 500) {
      silence.offline();
      await clock.advance(500);
    }
  };
  await refuseFor(1500);
  await clock.advance(1000);
  await refuseFor(1500);
  expect(replaced).toBe(0);
  await refuseFor(500);
  expect(replaced).toBe(1);
});
