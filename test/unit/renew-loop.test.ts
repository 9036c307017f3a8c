import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { Clock } from "../../src/core/clock.js";
import { Deadlines } from "../../src/core/deadlines.js";
import type { RenewAnswer as Answer, RenewRequest } from "../../src/core/engine.js";
import { Renewable, RenewLoop } from "../../src/core/renew-loop.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";

/** A claim that waits for nothing beside its heartbeats. */
abstract class Beating extends Renewable {
  deadline = Infinity;
  loop: RenewLoop | null = null;

  nextMoment(): number {
    return Infinity;
  }

  due(now: number): void {
    this.loop?.proceed(this, now);
  }
}

const LIMIT_MS = 5000;

function loopOf(
  renew: (requests: readonly RenewRequest[]) => Promise<readonly Answer[]>,
  clock: Clock,
  retryMs: number,
  unavailable: (cause: unknown) => void = () => {},
) {
  const deadlines = new Deadlines(clock);
  const loop = new RenewLoop({ renew, clock, deadlines, limitMs: LIMIT_MS, retryDelayMs: () => retryMs, unavailable });
  return {
    add(claim: Beating, lastHeartbeatAt: number): void {
      claim.loop = loop;
      loop.add(claim, lastHeartbeatAt, clock.now());
    },
    remove(claim: Beating): void {
      loop.remove(claim);
      deadlines.clear(claim.moment);
    },
    sendSoon: (claim: Beating) => loop.sendSoon(claim),
    clockJumped: () => deadlines.look(),
    stop(): void {
      loop.stop();
      deadlines.stop();
    },
  };
}

class Sample extends Beating {
  constructor(
    readonly id: string,
    readonly everyMs: number,
  ) {
    super();
  }
  heartbeat(): RenewRequest {
    return { name: this.id, id: this.id };
  }
  readonly heard: string[] = [];
  answered({ kind }: Answer): void {
    this.heard.push(kind);
  }
}

/** A clock that passes while its timers wait for a busy event loop. */
function lateClock() {
  let now = 0;
  let armed: { readonly at: number; readonly run: () => void } | null = null;
  let armings = 0;
  const clock: Clock = {
    now: () => now,
    wallMs: () => now,
    after: (ms, run) => ((armings += 1), (armed = { at: now + ms, run })),
    cancel: () => (armed = null),
  };
  const fireIfDue = (): void => {
    if (armed !== null && armed.at <= now) armed.run();
  };
  return { clock, fireIfDue, pass: (ms: number) => void (now += ms), armings: () => armings };
}

test("heartbeats that are overdue are not put off by others that come", async () => {
  const { clock, fireIfDue, pass, armings } = lateClock();
  const sent: string[] = [];
  const renew = async (requests: readonly RenewRequest[]) => {
    sent.push(...requests.map((request) => request.id));
    return requests.map(() => ({ kind: "unknown" as const, cause: "not asked" }));
  };
  const renewal = loopOf(renew, clock, 100);
  renewal.add(new Sample("short", 500), clock.now());
  pass(501);
  for (let n = 0; n < 10; n += 1) {
    renewal.add(new Sample(`long ${n}`, 3333), clock.now());
    pass(1);
  }
  // Once when it was found overdue, and not again: each arming puts it off.
  expect(armings()).toBe(2);
  fireIfDue();
  await settle();
  expect(sent).toEqual(["short"]);
  renewal.stop();
});

const RETRY_MS = 40;

/** A claim that checks when its heartbeats go out. */
class Checked extends Beating {
  /** Between these two the next request must go out. */
  #from: number;
  #until: number;
  #askedAt: number | null = null;
  /** Whether the last call was answered. */
  #heard = true;
  #removed = false;

  constructor(
    readonly id: string,
    readonly everyMs: number,
    readonly clock: Clock,
    heartbeatAt: number,
    readonly wrong: string[],
    readonly kinds: Set<string>,
  ) {
    super();
    // Up to an eighth earlier, to go along with others; at once when that is over.
    [this.#from, this.#until] = [heartbeatAt + (everyMs * 7) / 8 - 1, Math.max(clock.now(), heartbeatAt + everyMs)];
  }

  heartbeat(): RenewRequest {
    const now = this.clock.now();
    if (this.#removed) this.wrong.push(`${this.id} was removed and sends a request at ${now}`);
    if (now < this.#from || now > this.#until) {
      this.wrong.push(`${this.id} sends a request at ${now}, not between ${this.#from} and ${this.#until}`);
    }
    this.#askedAt = now;
    this.#heard = false;
    this.#expectEvery(now);
    return { name: this.id, id: this.id };
  }

  answered(answer: Answer, sentAt: number): void {
    if (this.#removed) this.wrong.push(`${this.id} was removed and hears an answer`);
    if (sentAt !== this.#askedAt) this.wrong.push(`${this.id} hears an answer to ${sentAt}, asked at ${this.#askedAt}`);
    if (answer.kind !== "queued" && answer.kind !== "unknown") this.wrong.push(`${this.id} hears ${answer.kind}`);
    this.kinds.add(answer.kind);
    this.#heard = true;
    const now = this.clock.now();
    if (answer.kind !== "unknown") return;
    const delay = Math.min(this.everyMs, RETRY_MS);
    [this.#from, this.#until] = [now + (delay * 7) / 8 - 1, now + delay];
  }

  hurried(): void {
    [this.#from, this.#until] = [this.clock.now(), this.clock.now()];
  }

  removed(): void {
    this.#removed = true;
    this.#until = Infinity;
  }

  /** Whether its request should have gone out by now, or the last one should have been answered. */
  get isLate(): boolean {
    return !this.#removed && (this.clock.now() > this.#until || !this.#heard);
  }

  #expectEvery(now: number): void {
    [this.#from, this.#until] = [now + (this.everyMs * 7) / 8 - 1, now + this.everyMs];
  }
}

const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("add" as const), every: fc.constantFrom(80, 100, 400), ago: fc.nat(450) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("remove" as const), which: fc.nat(20) }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("hurry" as const), which: fc.array(fc.nat(20), { maxLength: 3 }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("fail" as const),
      how: fc.constantFrom("reject", "no list", "short", "none"),
    }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(60) }) },
);

test("heartbeats go out when they are due, all of a turn in one call, again soon when the answer is unknown, and none after the end", async () => {
  const property = fc.asyncProperty(fc.array(step, { minLength: 15, maxLength: 40, size: "max" }), async (steps) => {
    const clock = new FakeClock();
    const all: Checked[] = [];
    const wrong: string[] = [];
    // What was heard since the store last began to fail, or to answer again.
    const kinds = new Set<string>();
    const [calls, troubles]: [number[], unknown[]] = [[], []];
    let fails = "none";
    const renew = async (requests: readonly RenewRequest[]): Promise<readonly Answer[]> => {
      calls.push(clock.now());
      if (fails === "reject") throw new Error("no answer");
      if (fails === "no list") return "granted" as unknown as readonly Answer[];
      const answers = requests.map((): Answer => ({ kind: "queued", nextMs: null, lastToken: 0 }) as unknown as Answer);
      return fails === "short" ? answers.slice(1) : answers;
    };
    const renewal = loopOf(renew, clock, RETRY_MS, (cause) => troubles.push(cause));
    for (const one of steps) {
      const asked = calls.length;
      if (one.kind === "add") {
        const { every, ago } = one;
        const heartbeatAt = clock.now() - Math.min(ago, every * 1.5);
        const added = new Checked(`${all.length}`, every, clock, heartbeatAt, wrong, kinds);
        all.push(added);
        renewal.add(added, heartbeatAt);
      } else if (one.kind === "remove") {
        const chosen = all[one.which % Math.max(1, all.length)];
        if (chosen !== undefined) {
          renewal.remove(chosen);
          chosen.removed();
        }
      } else if (one.kind === "hurry") {
        const chosen = [...new Set(one.which)]
          .flatMap((n) => all[n % Math.max(1, all.length)] ?? [])
          .filter((renewed) => renewed.heartbeatAt !== Infinity);
        for (const renewed of chosen) {
          renewed.hurried();
          renewal.sendSoon(renewed);
        }
        await settle();
        // Together with whatever was added in this turn.
        expect(calls.length).toBeLessThanOrEqual(asked + 1);
        if (chosen.length > 0) expect(calls.length).toBe(asked + 1);
      } else if (one.kind === "fail") {
        fails = one.how;
        kinds.clear();
      } else {
        for (let ms = one.ms; ms > 0; ms -= 1) {
          await clock.advance(1);
          expect(all.filter((renewed) => renewed.isLate).map(({ id }) => id)).toEqual([]);
          expect(clock.pending).toBeLessThanOrEqual(1);
          if (fails === "none") expect([...kinds]).not.toContain("unknown");
          if (fails === "reject" || fails === "no list") expect([...kinds]).not.toContain("queued");
        }
      }
    }
    await settle();
    const left = all.filter(({ heartbeatAt }) => heartbeatAt !== Infinity);
    if (left.length > 0) expect(clock.pending).toBe(1);
    const before = calls.length;
    for (const one of left) renewal.sendSoon(one);
    renewal.stop();
    expect(clock.pending).toBe(0);
    renewal.add(new Checked("too late", 100, clock, clock.now(), wrong, kinds), clock.now());
    await clock.advance(1000);
    expect(calls.length).toBe(before);
    expect(clock.pending).toBe(0);
    expect(wrong).toEqual([]);
  });
  await fc.assert(property, { numRuns: 60, seed: 19 });
});

test("after a jump of the clock a look sends at once what is due, and leaves one timer", async () => {
  const clock = new FakeClock();
  const sent: [at: number, id: string][] = [];
  const renew = async (requests: readonly RenewRequest[]): Promise<readonly Answer[]> => {
    sent.push(...requests.map(({ id }): [number, string] => [clock.now(), id]));
    return requests.map((): Answer => ({ kind: "unknown", cause: "not asked" }));
  };
  const renewal = loopOf(renew, clock, 1000);
  renewal.add(new Sample("due", 1000), 0);
  renewal.add(new Sample("not due", 9000), 0);
  clock.stall(1200);
  renewal.clockJumped();
  await settle();
  expect(sent).toEqual([[1200, "due"]]);
  expect(clock.pending).toBe(1);
  await clock.advance(900);
  expect(sent).toHaveLength(1);
  renewal.stop();
  expect(clock.pending).toBe(0);
});

test.each([
  ["soon", 40, 2 * LIMIT_MS + 40],
  ["when it is due, if that is sooner", 60_000, 2 * 8192],
])("after a call that was lost the next heartbeat goes out %s", async (_, retryMs, afterMs) => {
  const clock = new FakeClock();
  const sent: number[] = [];
  const renew = (requests: readonly RenewRequest[]): Promise<readonly Answer[]> => {
    sent.push(clock.now());
    const answers = requests.map((): Answer => ({ kind: "granted", leftMs: 30_000, token: 1, floor: 1 }));
    return sent.length === 1 ? new Promise(() => {}) : Promise.resolve(answers);
  };
  const renewal = loopOf(renew, clock, retryMs);
  renewal.add(new Sample("a", 8500), 0);
  await clock.advance(30_000);
  // The second was due before the first was lost.
  expect(sent.slice(0, 3).map((at) => at - (sent[0] ?? 0))).toEqual([0, 8192, afterMs]);
  renewal.stop();
});

test("what a client with many claims has to send goes out in calls of 500, and each call fails by itself", async () => {
  const clock = new FakeClock();
  const calls: string[][] = [];
  const troubles: unknown[] = [];
  let failing = -1;
  let meanwhile = (): void => {};
  const renew = async (requests: readonly RenewRequest[]): Promise<readonly Answer[]> => {
    calls.push(requests.map(({ id }) => id));
    meanwhile();
    if (calls.length - 1 === failing) throw new Error("no answer");
    return requests.map(() => ({ kind: "granted" as const, leftMs: 1000, token: 1, floor: 1 }));
  };
  const renewal = loopOf(renew, clock, 40, (cause) => troubles.push(cause));
  const claims = Array.from({ length: 1201 }, (_, n) => new Sample(`${n}`, 1000));
  for (const claim of claims) renewal.add(claim, clock.now());
  const ids = claims.map(({ id }) => id);

  const until = async (count: number) => {
    for (let ms = 0; ms < 2000 && calls.length < count; ms += 1) await clock.advance(1);
    await settle();
  };
  // Of those that wait for their call one ends.
  meanwhile = () => {
    if (calls.length === 1) renewal.remove(claims[1200] as Sample);
  };
  await until(3);
  expect(calls).toEqual([ids.slice(0, 500), ids.slice(500, 1000), ids.slice(1000, 1200)]);
  expect(claims.map(({ heard }) => heard)).toEqual(ids.map((_, n) => (n < 1200 ? ["granted"] : [])));

  // The second call of the next round is not answered: the others were told all the same, and it alone is sent again.
  failing = 4;
  for (const { heard } of claims) heard.length = 0;
  await until(7);
  expect(calls.slice(3)).toEqual([
    ids.slice(0, 500),
    ids.slice(500, 1000),
    ids.slice(1000, 1200),
    ids.slice(500, 1000),
  ]);
  expect(troubles).toHaveLength(1);
  const told = (n: number) => (n >= 500 && n < 1000 ? ["unknown", "granted"] : ["granted"]);
  expect(claims.map(({ heard }) => heard)).toEqual(ids.map((_, n) => (n < 1200 ? told(n) : [])));

  // Stopped between two calls: the rest is not sent.
  meanwhile = () => {
    if (calls.length === 8) renewal.stop();
  };
  await until(8);
  await clock.advance(5000);
  expect(calls).toHaveLength(8);
});

test("a heartbeat that somebody waits for goes out in its turn, however many are due, and those that are due keep their pace", async () => {
  const clock = new FakeClock();
  const calls: string[][] = [];
  let meanwhile = (): void => {};
  const renew = async (requests: readonly RenewRequest[]): Promise<readonly Answer[]> => {
    calls.push(requests.map(({ id }) => id));
    meanwhile();
    return requests.map(() => ({ kind: "granted" as const, leftMs: 1000, token: 1, floor: 1 }));
  };
  const renewal = loopOf(renew, clock, 40);
  const claims = Array.from({ length: 1700 }, (_, n) => new Sample(`${n}`, 1000));
  for (const claim of claims) renewal.add(claim, clock.now());
  const ids = claims.map(({ id }) => id);
  const woken = new Sample("woken", 9000);
  renewal.add(woken, clock.now());
  const [last, other] = [claims[1699] as Sample, claims[1698] as Sample];
  meanwhile = () => {
    if (calls.length !== 1) return;
    // One that is not due, one that is and would have been the last, and one that ends before it is sent. None goes out twice.
    for (const claim of [woken, last, last, other]) renewal.sendSoon(claim);
    renewal.remove(other);
  };
  for (let ms = 0; ms < 1100 && calls.length < 5; ms += 1) await clock.advance(1);
  expect(calls).toEqual([
    ids.slice(0, 500),
    ["woken", "1699"],
    ids.slice(500, 1000),
    ids.slice(1000, 1500),
    ids.slice(1500, 1698),
  ]);
  // More than one call takes: those that are wanted first, then those that are due.
  calls.length = 0;
  renewal.remove(last);
  const wanted = claims.slice(600, 1300);
  for (let ms = 0; ms < 2000 && calls.length === 0; ms += 1) {
    meanwhile = () => {
      if (calls.length === 1) for (const claim of wanted) renewal.sendSoon(claim);
    };
    await clock.advance(1);
  }
  for (let ms = 0; ms < 10 && calls.length < 5; ms += 1) await clock.advance(1);
  expect(calls).toEqual([
    ids.slice(0, 500),
    ids.slice(600, 1100),
    [...ids.slice(1100, 1300), ...ids.slice(500, 600), ...ids.slice(1300, 1500)],
    ids.slice(1500, 1698),
  ]);
  renewal.stop();
});
