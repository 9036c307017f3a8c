import type { ClaimRef, ClaimRequest, Engine } from "../../src/core/engine.js";
import { NotSentError } from "../../src/core/errors.js";
import type { HolderState } from "../../src/core/inspect.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { quorumEngine, quorumSize } from "../../src/engines/quorum/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import type { Violation } from "../../src/testing/history.js";
import { intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { MemberClock, SimulatedMember } from "./quorum-member.js";
import type { MakeEngine } from "./quorum-world.js";

const COMMANDS = 30;
const LEASES_MS = [5_000, 20_000];
const EXTENDED_MS = 60_000;
/** As the quorum takes it off unless told otherwise, and the time that a call with a hung member takes. */
const DRIFT = { ratio: 0.01, ms: 2 };
const CALL_MAX_MS = 2_000;

/** A claim that was granted and not given back. */
type Held = { client: number; claim: ClaimRequest; token: number; handedOver: boolean };

/** What one client's wire to one member has carried about a claim. */
type Carried = { claims: number; answer: string | null; token: number };

/**
 * What the quorum says against what its members store. Calls on the engine itself, answered at once, by clients on members that go
 * away, come back, forget, and whose calendars differ; after each the judge looks into every member. Everything follows from the seed.
 */
export async function simulateTruth(seed: number, make: MakeEngine = quorumEngine): Promise<readonly Violation[]> {
  const world = new Truth(seed, make);
  await world.open();
  for (let n = 0; n < COMMANDS && world.violations.length === 0; n += 1) await world.command();
  if (world.violations.length === 0) await world.close();
  return world.violations;
}

class Truth {
  readonly violations: Violation[] = [];
  readonly #chance: SeededChance;
  readonly #clock = new FakeClock();
  readonly #make: MakeEngine;
  readonly #members: readonly SimulatedMember[];
  readonly #eyes: readonly Pick<Engine, "inspect">[];
  readonly #engines: Engine[] = [];
  readonly #held: Held[] = [];
  readonly #away = new Set<SimulatedMember>();
  /** By client, member and id. */
  readonly #carried = new Map<string, Carried>();
  /** Calls that members were sent since it was last set to 0. */
  #calls = 0;
  #hungUntil = -Infinity;
  #operation = "";

  constructor(seed: number, make: MakeEngine) {
    this.#chance = new SeededChance(seed);
    this.#make = make;
    // Beyond an hour a member mints higher tokens than are suggested to it.
    const skewed = this.#chance.chance(0.3);
    const skewMs = (): number => (skewed ? this.#chance.fraction() * 3 * 3_600_000 : 0);
    const count = [3, 3, 4, 5][this.#chance.between(0, 3)] ?? 3;
    this.#members = Array.from(
      { length: count },
      (_, n) => new SimulatedMember(`member ${n}`, new MemberClock(this.#clock, 1, skewMs())),
    );
    this.#eyes = this.#members.map((member) => ({ inspect: (filter) => member.look(filter) }));
  }

  async open(): Promise<void> {
    for (let client = 0; client < 2; client += 1) {
      const wires = this.#members.map((member, n) => this.#wire(client, member, n));
      const chance = new SeededChance(this.#chance.between(0, 2 ** 32 - 1));
      this.#engines.push(await this.#make(wires, { clock: this.#clock, chance }));
    }
  }

  async command(): Promise<void> {
    const draw = this.#chance.between(0, 19);
    if (draw < 6) await this.#claim();
    else if (draw < 11) await this.#renew();
    else if (draw < 13) await this.#release();
    else if (draw < 14) await this.#downgrade();
    else if (draw < 17) this.#fault();
    else await this.#pass();
    await this.#quiet();
  }

  /** Everything comes to its end, and nothing is left anywhere. */
  async close(): Promise<void> {
    for (const member of this.#away) member.comeBack(false);
    for (const { client, claim } of this.#held) await this.#answered("release", this.#engine(client).release(claim));
    await this.#clock.advance(EXTENDED_MS + 20_000);
    if (this.#members.some((member) => !member.isEmpty)) this.#broken("no orphan", "a claim outlived its lease");
    const closing = Promise.all(this.#engines.map((engine) => engine[Symbol.asyncDispose]()));
    await this.#clock.advance(CALL_MAX_MS);
    await closing;
    if (this.#clock.pending > 0) this.#broken("no timer left", `${this.#clock.pending} timers`);
  }

  async #claim(): Promise<void> {
    const kind = this.#chance.between(0, 3);
    const [stem, capacity, units] = (
      [
        ["mutex", 1, 1],
        ["semaphore", this.#chance.chance(0.8) ? 2 : 3, 1],
        ["rw", READERS_MAX, 1],
        ["rw", READERS_MAX, READERS_MAX],
      ] as const
    )[kind] ?? ["mutex", 1, 1];
    const client = this.#chance.between(0, 1);
    const claim: ClaimRequest = {
      name: stem,
      id: this.#chance.id(),
      units,
      capacity,
      leaseMs: LEASES_MS[this.#chance.between(0, 1)] ?? 5_000,
      wait: false,
      owner: { client: String(client), host: "h", pid: 1 },
      ...(stem === "semaphore" && this.#chance.chance(0.5) ? { exact: true } : {}),
    };
    this.#operation = `claim ${stem}`;
    const sentAt = this.#clock.now();
    const free = this.#allAnswer && (await this.#isFree(stem));
    const beside = await this.#liveBeside(stem);
    const answer = await this.#answered(this.#operation, this.#engine(client).claim(claim));
    if (free && answer?.kind !== "granted") this.#broken("granted", `it is free, and the claim says ${answer?.kind}`);
    if (answer?.kind === "granted") {
      await this.#checkLeft(claim, answer.leftMs, sentAt);
      await this.#checkToken(claim, answer.token);
      if ((answer.live === undefined) === (claim.exact === true))
        this.#broken("live", "a set where none was asked for");
      const live = [...(beside ?? []), answer.token].toSorted((one, two) => one - two).join(" ");
      if (beside !== undefined && answer.live !== undefined && answer.live.join(" ") !== live)
        this.#broken("live", `${live} live, and ${answer.live.join(" ")} are told`);
      this.#held.push({ client, claim, token: answer.token, handedOver: false });
    } else if (this.#away.size === 0) {
      await this.#quiet();
      if (await this.#anywhere(claim)) this.#broken("given back", `${stem} was answered ${answer?.kind}, and is held`);
    }
  }

  async #renew(): Promise<void> {
    const held = this.#some();
    if (held === undefined) return;
    const { claim } = held;
    const leaseMs = this.#chance.chance(0.4) ? EXTENDED_MS : undefined;
    // Sometimes it was handed over, to a client that has never heard of it.
    if (this.#chance.chance(0.1)) this.#handOver(held);
    const { client } = held;
    this.#operation = `renew ${claim.name}${leaseMs === undefined ? "" : " for longer"}`;
    const complete = await this.#everywhere(held);
    const before = await this.#copies(claim);
    const known = this.#carriedBy(client, 0, claim) !== undefined;
    this.#calls = 0;
    const sentAt = this.#clock.now();
    const request = { name: claim.name, id: claim.id, ...(leaseMs === undefined ? {} : { leaseMs }) };
    const [answer] = (await this.#answered(this.#operation, this.#engine(client).renew([request]))) ?? [];
    if (answer?.kind === "granted") {
      await this.#checkLeft(claim, answer.leftMs, sentAt);
      await this.#checkToken(claim, answer.token);
      held.token = answer.token;
    }
    await this.#quiet();
    if (complete && known) {
      if (answer?.kind !== "granted") this.#broken("kept", `all members have it, and the renewal says ${answer?.kind}`);
      if (this.#calls !== this.#members.length)
        this.#broken("one call each", `${this.#calls} for a renewal at ${this.#members.length} members`);
    }
    if (answer?.kind === "granted") await this.#checkRepaired(held, before, leaseMs);
    else if (answer?.kind === "gone") this.#held.splice(this.#held.indexOf(held), 1);
  }

  /** Its new client knows nothing of what was sent before. */
  #handOver(held: Held): void {
    held.client = 1 - held.client;
    held.handedOver = true;
    for (const n of this.#members.keys())
      this.#carried.set(`${held.client} ${n} ${held.claim.id} ${held.claim.name}`, {
        claims: 2,
        answer: null,
        token: 0,
      });
  }

  async #release(): Promise<void> {
    const held = this.#some();
    if (held === undefined) return;
    this.#held.splice(this.#held.indexOf(held), 1);
    this.#operation = `release ${held.claim.name}`;
    const complete = await this.#everywhere(held);
    const word = await this.#answered(this.#operation, this.#engine(held.client).release(held.claim));
    await this.#quiet();
    if (complete && word !== "released") this.#broken("kept", `all members have it, and its release says ${word}`);
    if (this.#away.size === 0 && (await this.#anywhere(held.claim)))
      this.#broken("given back", `${held.claim.name} was released, and is held`);
  }

  /** A writer becomes a reader. */
  async #downgrade(): Promise<void> {
    const held = this.#held.find(({ claim }) => claim.units === READERS_MAX);
    if (held === undefined) return;
    this.#operation = "downgrade";
    const word = await this.#answered(this.#operation, this.#engine(held.client).resize(held.claim, 1));
    if (word === "resized") held.claim = { ...held.claim, units: 1 };
  }

  #fault(): void {
    const member = this.#members[this.#chance.between(0, this.#members.length - 1)] as SimulatedMember;
    const forgets = this.#chance.chance(0.6);
    this.#hungUntil = this.#clock.now();
    if (this.#away.delete(member) || this.#chance.chance(0.4)) return member.comeBack(forgets);
    // One at a time: two of three that are away end everything.
    if (this.#away.size > 0) return undefined;
    this.#away.add(member);
    return member.goAway(this.#chance.chance(0.5) ? "refusing" : "hung");
  }

  async #pass(): Promise<void> {
    await this.#clock.advance(this.#chance.fraction() * 4_000);
  }

  #some(): Held | undefined {
    return this.#held[this.#chance.between(0, Math.max(0, this.#held.length - 1))];
  }

  #engine(client: number): Engine {
    const engine = this.#engines[client];
    if (engine === undefined) throw new Error("invariant: there are two clients");
    return engine;
  }

  /** Undefined when it failed; every call comes to an end, however many members are silent. */
  async #answered<T>(what: string, call: Promise<T>): Promise<T | undefined> {
    const end: { done: boolean; answer?: T } = { done: false };
    call.then(
      (answer) => Object.assign(end, { done: true, answer }),
      () => (end.done = true),
    );
    await this.#clock.advance(0);
    for (let ms = 0; !end.done && ms < CALL_MAX_MS; ms += 20) await this.#clock.advance(20);
    if (!end.done) this.#broken("answered", `${what} was not answered within ${CALL_MAX_MS} ms`);
    return end.answer;
  }

  /** What goes on behind an answer is done. */
  async #quiet(): Promise<void> {
    await this.#clock.advance(this.#away.size > 0 ? 120 : 1);
  }

  async #at(member: number, { name, id }: ClaimRef): Promise<HolderState | undefined> {
    for await (const { holders } of this.#eyes[member]?.inspect({ name }) ?? []) {
      const holder = holders.find((one) => one.id === id);
      if (holder !== undefined) return holder;
    }
    return undefined;
  }

  async #copies(ref: ClaimRef): Promise<(HolderState | undefined)[]> {
    return Promise.all(this.#members.map((_, n) => this.#at(n, ref)));
  }

  async #anywhere(ref: ClaimRef): Promise<boolean> {
    return (await this.#copies(ref)).some((copy) => copy !== undefined);
  }

  async #isFree(name: string): Promise<boolean> {
    for (const eye of this.#eyes) for await (const _ of eye.inspect({ name })) return false;
    return true;
  }

  /** The tokens of all holders, when every member can be asked and has all of them; undefined otherwise. */
  async #liveBeside(name: string): Promise<readonly number[] | undefined> {
    const held = this.#held.filter(({ claim }) => claim.name === name);
    for (const one of held) if (!(await this.#everywhere(one))) return undefined;
    for (const eye of this.#eyes)
      for await (const { holders } of eye.inspect({ name })) if (holders.length !== held.length) return undefined;
    return held.map(({ token }) => token);
  }

  /** Every member can be asked and stores it as it is. */
  async #everywhere({ claim, token }: Held): Promise<boolean> {
    const copies = await this.#copies(claim);
    const same = copies.every((copy) => copy?.token === token && copy.units === claim.units);
    return this.#allAnswer && same;
  }

  /** A member that left many calls unanswered is left alone for a while. */
  get #allAnswer(): boolean {
    return this.#away.size === 0 && this.#clock.now() > this.#hungUntil + 6_000;
  }

  /** A quorum holds it for as long as it says, and it does not say less than all of them do. */
  async #checkLeft(claim: ClaimRequest, leftMs: number, sentAt: number): Promise<void> {
    const needed = quorumSize(this.#members.length, claim.capacity);
    const ends = (await this.#copies(claim))
      .flatMap((copy) => (copy === undefined ? [] : [this.#clock.now() + copy.leftMs]))
      .toSorted((one, two) => two - one);
    const told = sentAt + leftMs;
    if (told > (ends[needed - 1] ?? 0))
      this.#broken(
        "time left",
        `${claim.name} is told ${leftMs} ms, and no quorum holds it that long: ${ends.join(" ")}`,
      );
    const least = (ends.at(-1) ?? 0) - sentAt;
    if (leftMs < least - least * DRIFT.ratio - DRIFT.ms - 100)
      this.#broken("time left", `${claim.name} is told ${leftMs} ms, and every member holds it for ${least}`);
  }

  /** What all members can be asked for is, after a renewal, wherever it fits, and for as long as was asked. */
  async #checkRepaired(
    { claim, token, handedOver }: Held,
    before: readonly (HolderState | undefined)[],
    leaseMs = claim.leaseMs,
  ): Promise<void> {
    if (this.#away.size > 0) return;
    for (const [n, copy] of (await this.#copies(claim)).entries()) {
      const brought = before[n] === undefined && copy !== undefined;
      if (brought && claim.units !== claim.capacity && copy.token !== token)
        this.#broken("repaired", `${claim.name} has ${token}, and was brought back at member ${n} as ${copy.token}`);
      if (!this.#allAnswer || claim.units !== claim.capacity) continue;
      const others: string[] = [];
      for await (const state of this.#eyes[n]?.inspect({ name: claim.name }) ?? [])
        others.push(...state.holders.map(({ id }) => id));
      if (copy === undefined && others.length === 0)
        this.#broken("repaired", `${claim.name} is not at member ${n}, where it fits`);
      // Whoever it was handed over to does not know its lease, only how long it still lasts.
      if (copy !== undefined && !(handedOver && leaseMs === claim.leaseMs) && copy.leftMs < leaseMs - 100)
        this.#broken("repaired", `${claim.name} is at member ${n} for ${copy.leftMs} of ${leaseMs} ms`);
    }
  }

  /** A quorum stores its token. Beside others it must be the very same: a higher one raises the floor that the member tells them. */
  async #checkToken(claim: ClaimRequest, token: number): Promise<void> {
    const exclusive = claim.units === claim.capacity;
    const copies = await this.#copies(claim);
    const storing = copies.filter((copy) => copy && (exclusive ? copy.token >= token : copy.token === token)).length;
    if (storing < quorumSize(this.#members.length, claim.capacity))
      this.#broken("token", `${claim.name} has ${token}, which ${storing} members store`);
  }

  #carriedBy(client: number, member: number, { id, name }: ClaimRef): Carried | undefined {
    return this.#carried.get(`${client} ${member} ${id} ${name}`);
  }

  #wire(client: number, member: SimulatedMember, n: number): Engine {
    const sent = <T>(call: () => Promise<T>): Promise<T> => {
      if (member.refuses) return Promise.reject(new NotSentError("not connected"));
      this.#calls += 1;
      return call();
    };
    return intercept(member.open(), {
      claim: async (call, { id, name }) => {
        const carried = this.#carriedBy(client, n, { id, name }) ?? { claims: 0, answer: null, token: 0 };
        this.#carried.set(`${client} ${n} ${id} ${name}`, carried);
        if (!member.refuses) carried.claims += 1;
        const answer = await sent(call);
        Object.assign(carried, { answer: answer.kind, token: answer.kind === "granted" ? answer.token : 0 });
        return answer;
      },
      release: (call, { id, name }) => {
        const { claims = 0, answer } = this.#carriedBy(client, n, { id, name }) ?? {};
        if (claims === 1 && (answer === "busy" || answer === "mismatch"))
          this.#broken("no call in vain", `a release was sent to member ${n}, which had said ${answer}`);
        return sent(call);
      },
      renew: async (call, requests) => {
        for (const request of requests) {
          const token = this.#carriedBy(client, n, request)?.token ?? 0;
          if (request.tokenAtLeast !== undefined && token >= request.tokenAtLeast)
            this.#broken("no call in vain", `member ${n} is told a token that it has`);
        }
        const answers = await sent(call);
        for (const [at, request] of requests.entries()) {
          const answer = answers[at];
          if (answer?.kind === "unknown") continue;
          const carried = this.#carriedBy(client, n, request);
          const token = answer?.kind === "granted" ? answer.token : 0;
          if (carried) Object.assign(carried, { answer: answer?.kind ?? null, token });
        }
        return answers;
      },
      resize: sent,
    });
  }

  #broken(rule: string, what: string): void {
    this.violations.push({ rule, what: `${this.#operation}: ${what}` });
  }
}
