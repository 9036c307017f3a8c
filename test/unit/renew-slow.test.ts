import * as fc from "fast-check";
import { expect, test } from "vitest";
import { Deadlines } from "../../src/core/deadlines.js";
import type { RenewAnswer, RenewRequest } from "../../src/core/engine.js";
import { Renewable, RenewLoop } from "../../src/core/renew-loop.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";

// Heartbeats while the store answers when it likes, or not at all, beside the rules by which they are sent. Each claim and each
// call is looked at by itself, so the rules know no queue, no order of events and no counter.

const [LIMIT_MS, RETRY_MS] = [60, 25];
const [CALLS, CALLS_WANTED, PER_CALL] = [4, 6, 500];

type Sent = {
  readonly claims: readonly Slow[];
  readonly wanted: ReadonlySet<Slow>;
  readonly sentAt: number;
  answer: (how: How) => void;
};
type How = "granted" | "unknown" | "short" | "reject";

/** A claim, and when its next heartbeat may and must go out. */
class Slow extends Renewable {
  from = Infinity;
  until = Infinity;
  wanted = false;
  removed = false;
  readonly heard: string[] = [];
  readonly expected: string[] = [];
  /** Those that are not answered. */
  readonly calls = new Set<Sent>();

  constructor(
    readonly id: string,
    readonly everyMs: number,
    readonly deadline: number,
    override readonly waits: boolean,
    readonly loop: () => RenewLoop,
  ) {
    super();
  }

  heartbeat(): RenewRequest {
    return { name: this.id, id: this.id };
  }

  answered({ kind }: RenewAnswer, sentAt: number): void {
    this.heard.push(`${kind} of ${sentAt}`);
  }

  nextMoment(): number {
    return Infinity;
  }

  due(now: number): void {
    this.loop().proceed(this, now);
  }

  /** Up to an eighth earlier, to go along with others. */
  expectIn(now: number, ms: number): void {
    [this.from, this.until] = [now + (ms * 7) / 8 - 1, now + ms];
  }

  /** The same, and whoever is due already may go out before that. */
  expectAgain(now: number, ms: number): void {
    const { from } = this;
    this.expectIn(now, ms);
    if (from <= now) this.from = from;
  }

  /** The same, unless it must go out before that anyhow. */
  expectWithin(now: number, ms: number): void {
    [this.from, this.until] = [Math.min(this.from, now + (ms * 7) / 8 - 1), Math.min(this.until, now + ms)];
  }
}

function slowStore() {
  const clock = new FakeClock();
  const deadlines = new Deadlines(clock);
  const [calls, claims, wrong]: [Set<Sent>, Slow[], string[]] = [new Set(), [], []];
  let [unavailable, expectedUnavailable, stopped] = [0, 0, false];
  /** Whether heartbeats had to wait for a place when the last millisecond was over. */
  let waited = false;

  const isLate = ({ sentAt }: Sent): boolean => clock.now() >= sentAt + LIMIT_MS;
  const isLost = ({ sentAt }: Sent): boolean => clock.now() >= sentAt + 2 * LIMIT_MS;
  const places = (): number => [...calls].filter((call) => !isLost(call)).length;
  const underWay = (claim: Slow): number => [...claim.calls].filter((call) => !isLate(call)).length;
  // One that was wanted is sent beside the two that were due.
  const most = (claim: Slow): number => 2 + [...claim.calls].filter(({ wanted }) => wanted.has(claim)).length;
  const key = (claim: Slow): number => (2 * Number(claim.waits) + Number(underWay(claim) > 0)) * 1e9 + claim.deadline;
  const left = (): Slow[] => claims.filter((claim) => !claim.removed && (claim.wanted || clock.now() > claim.until));

  function checkCall(sent: readonly Slow[]): void {
    const [now, taken] = [clock.now(), places()];
    const due = sent.filter(({ wanted }) => !wanted);
    const all = new Set(sent);
    const told = (what: string): void => void wrong.push(`${what} at ${now}`);
    if (stopped) told("sent after the end");
    if (taken >= (due.length > 0 ? CALLS : CALLS_WANTED)) told(`${taken} calls were under way`);
    if (sent.length > PER_CALL || all.size < sent.length) told(`a call of ${sent.length}`);
    for (const claim of sent) {
      if (claim.removed) told(`${claim.id} was removed`);
      if (!claim.wanted && now < claim.from) told(`${claim.id} is not due before ${claim.from}`);
      if (!claim.wanted && underWay(claim) >= most(claim)) told(`${claim.id} is under way twice`);
    }
    const rest = left().filter((claim) => !all.has(claim));
    if (due.length > 0 && rest.some(({ wanted }) => wanted)) told("what is due was sent before what is wanted");
    if (!waited) return;
    for (const wanted of [true, false]) {
      const first = sent.filter((claim) => claim.wanted === wanted);
      const later = rest.filter((claim) => claim.wanted === wanted && underWay(claim) < 2);
      // What one call takes needs no order.
      if (first.length + later.length <= PER_CALL) continue;
      const last = Math.max(...first.map(key));
      const before = later.find((claim) => key(claim) < last);
      if (before !== undefined) told(`${before.id} should have been sent before`);
    }
  }

  async function renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const sent = requests.map(({ id }) => claims[Number(id)] as Slow);
    checkCall(sent);
    waited = false;
    const sentAt = clock.now();
    return new Promise((resolve, reject) => {
      const answer = (how: How): void => {
        const granted: RenewAnswer = { kind: "granted", leftMs: 1000, token: 1, floor: 1 };
        const unknown: RenewAnswer = { kind: "unknown", cause: "not told" };
        const answers = requests.map((_, n) => (how === "unknown" && n % 2 === 0 ? unknown : granted));
        calls.delete(call);
        const wasFull = new Set(sent.filter((claim) => underWay(claim) >= 2));
        for (const claim of sent) claim.calls.delete(call);
        if (how === "reject" && !isLate(call)) expectedUnavailable += 1;
        for (const [n, claim] of sent.entries()) {
          if (claim.removed) continue;
          const isUnknown = how === "reject" || answers[n] === unknown || (how === "short" && n >= 1);
          claim.expected.push(`${isUnknown ? "unknown" : "granted"} of ${sentAt}`);
          // One that waits for a place keeps waiting for it.
          if (isUnknown && !claim.wanted && (clock.now() <= claim.until || wasFull.has(claim)))
            claim.expectAgain(clock.now(), Math.min(claim.everyMs, RETRY_MS));
        }
        if (how === "reject") reject(new Error("no answer"));
        else resolve(how === "short" ? answers.slice(0, 1) : answers);
      };
      const call: Sent = { claims: sent, wanted: new Set(sent.filter(({ wanted }) => wanted)), sentAt, answer };
      calls.add(call);
      for (const claim of sent) {
        claim.calls.add(call);
        claim.wanted = false;
        claim.expectIn(sentAt, claim.everyMs);
      }
    });
  }

  const loop: RenewLoop = new RenewLoop({
    renew,
    clock,
    deadlines,
    limitMs: LIMIT_MS,
    retryDelayMs: () => RETRY_MS,
    unavailable: () => void (unavailable += 1),
  });

  /** After each millisecond: nobody waits who could be sent, and each was told what it had to be told. */
  function check(): void {
    const now = clock.now();
    const taken = places();
    for (const call of calls) {
      if (now === call.sentAt + LIMIT_MS) {
        expectedUnavailable += 1;
        for (const claim of call.claims) if (!claim.removed) claim.expected.push(`unknown of ${call.sentAt}`);
      }
      if (now === call.sentAt + 2 * LIMIT_MS) {
        for (const claim of call.claims) if (!claim.removed && underWay(claim) === 0) claim.expectWithin(now, RETRY_MS);
      }
    }
    for (const claim of left()) {
      const isFull = taken >= (claim.wanted ? CALLS_WANTED : CALLS);
      if (isFull) waited ||= underWay(claim) < 2;
      else if (claim.wanted || underWay(claim) < 2) wrong.push(`${claim.id} was not sent by ${now}`);
    }
    if (wrong.length > 0) expect(wrong.slice(0, 5)).toEqual([]);
    if (unavailable !== expectedUnavailable) expect(unavailable).toBe(expectedUnavailable);
    for (const { heard, expected } of claims) {
      if (heard.length === 0 && expected.length === 0) continue;
      if (String(heard) !== String(expected)) expect(heard).toEqual(expected);
      heard.length = expected.length = 0;
    }
  }

  return {
    clock,
    calls,
    claims,
    add(everyMs: number, deadline: number, waits: boolean): void {
      const claim = new Slow(String(claims.length), everyMs, deadline, waits, () => loop);
      claims.push(claim);
      claim.expectIn(clock.now(), everyMs);
      loop.add(claim, clock.now(), clock.now());
    },
    want(claim: Slow): void {
      claim.wanted = true;
      loop.sendSoon(claim);
    },
    remove(claim: Slow): void {
      claim.removed = true;
      loop.remove(claim);
      deadlines.clear(claim.moment);
    },
    async pass(ms: number): Promise<void> {
      for (let n = 0; n < ms; n += 1) {
        await clock.advance(1);
        check();
      }
    },
    async stop(): Promise<void> {
      stopped = true;
      loop.stop();
      deadlines.stop();
      for (const call of calls) call.answer("granted");
      await clock.advance(1000);
      expect(wrong).toEqual([]);
      expect(clock.pending).toBe(0);
    },
  };
}

const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("add" as const),
      // Few crowds: they are what takes time.
      count: fc.constantFrom(1, 1, 1, 2, 2, 3, 3, 5, 20, 560, 1150),
      everyMs: fc.constantFrom(24, 40, 80, 200),
      waits: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("remove" as const), which: fc.nat(), count: fc.nat(3) }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("want" as const), which: fc.nat(), count: fc.constantFrom(1, 1, 2, 600) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("answer" as const),
      which: fc.nat(9),
      count: fc.constantFrom(1, 2, 9),
      how: fc.constantFrom<How>("granted", "granted", "granted", "unknown", "short", "reject"),
    }),
  },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(60) }) },
);

test("while a store is slow few calls are under way, what waits is sent in order as soon as there is room, and each answer counts once", async () => {
  const property = fc.asyncProperty(
    fc.array(step, { minLength: 20, maxLength: 45, size: "max" }),
    fc.infiniteStream(fc.nat(10_000)),
    async (steps, random) => {
      const store = slowStore();
      for (const one of steps) {
        const living = store.claims.filter(({ removed }) => !removed);
        if (one.kind === "add") {
          if (living.length + one.count < 2000)
            for (let n = 0; n < one.count; n += 1) store.add(one.everyMs, random.next().value, one.waits);
        } else if (one.kind === "remove") {
          for (const claim of living.slice(one.which % (living.length + 1)).slice(0, one.count)) store.remove(claim);
        } else if (one.kind === "want") {
          for (const claim of living.slice(one.which % (living.length + 1)).slice(0, one.count)) store.want(claim);
        } else if (one.kind === "answer") {
          const open = [...store.calls];
          for (const call of open.slice(one.which % (open.length + 1)).slice(0, one.count)) call.answer(one.how);
          await settle();
        } else await store.pass(one.ms);
      }
      await store.stop();
    },
  );
  // A shorter one would be looked for during minutes.
  await fc.assert(property, { numRuns: 25, seed: 7, endOnFailure: true });
});
