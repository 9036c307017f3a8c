import type { Arbitrary, AsyncCommand, CommandsContraints } from "fast-check";
import type { ClaimRequest, RenewRequest, Tombstone } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { Call } from "./reference.js";
import {
  type ClaimChoice,
  DATA_COUNT,
  type HeartbeatChoice,
  KIND_COUNT,
  LEASE_COUNT,
  namesOf,
  type Suggestion,
  type VirtualPair,
} from "./virtual-pair.js";

type FastCheck = typeof import("fast-check");
type Command = AsyncCommand<object, VirtualPair>;

/** How a claim is given back: half of them in the common way. */
const TOMBSTONES = ["always", "always", "never", "if-missing"] as const satisfies readonly Tombstone[];

/** One call of several in a tick. */
type Part =
  | { readonly verb: "claim"; readonly choice: ClaimChoice }
  | { readonly verb: "again"; readonly pick: number }
  | { readonly verb: "release"; readonly pick: number; readonly tombstone: Tombstone; readonly to: number | null }
  | { readonly verb: "run"; readonly pick: number; readonly length: number }
  | { readonly verb: "renew"; readonly heartbeats: readonly HeartbeatChoice[] };

/** In µs, as tokens are: below, at and above the time, so that some of them are overtaken by it soon and others late. */
const FROM_TIME = [-3_000_000, 0, 1, 500, 2_000_000, 40_000_000] as const;
const FROM_TOKEN = [-1, 0, 1, 2, 1_000] as const;

/** Commands for a store that keeps the clock that it is given: all leases end in their time, and nobody waits for that. */
export function virtualCommands(fc: FastCheck, constraints: CommandsContraints) {
  const index = fc.nat(1000);
  const client = fc.nat(1);
  const seldom = fc.nat(9).map((n) => n === 9);
  const suggestion: Arbitrary<Suggestion> = fc.oneof(
    fc.constantFrom(...FROM_TIME).map((more) => ({ from: "time", more }) as const),
    fc.constantFrom(...FROM_TOKEN).map((more) => ({ from: "token", more }) as const),
  );
  /** One time in so many. */
  const sometimes = <T>(one: Arbitrary<T>, times: number): Arbitrary<T | null> =>
    fc.oneof({ weight: times - 1, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: one });
  const atLeast = sometimes(suggestion, 4);
  const lease = fc.nat(LEASE_COUNT - 1);
  // Most claims meet on two names, so that queues grow.
  const kind = fc.oneof({ weight: 2, arbitrary: fc.nat(1) }, { weight: 1, arbitrary: fc.nat(KIND_COUNT - 1) });
  const choice: Arbitrary<ClaimChoice> = fc.record({
    kind,
    units: fc.nat(5),
    lease,
    data: fc.nat(DATA_COUNT - 1),
    wait: fc.nat(5).map((n) => n < 5),
    exact: fc.boolean(),
    chosen: fc.boolean(),
    leaseOnly: seldom,
    fixed: seldom,
    strange: seldom,
    sameId: sometimes(index, 12),
    atLeast,
    reserve: fc.nat(11).map((n) => Math.max(0, n - 8)),
  });
  const heartbeat: Arbitrary<HeartbeatChoice> = fc.record({ pick: index, lease: sometimes(lease, 2), atLeast });
  const heartbeats = fc.array(heartbeat, { minLength: 1, maxLength: 5 });
  const tombstone = fc.constantFrom(...TOMBSTONES);
  const to = sometimes(index, 3);
  const part: Arbitrary<Part> = fc.oneof(
    { weight: 4, arbitrary: choice.map((one): Part => ({ verb: "claim", choice: one })) },
    { weight: 1, arbitrary: index.map((pick): Part => ({ verb: "again", pick })) },
    {
      weight: 3,
      arbitrary: fc
        .tuple(index, tombstone, to)
        .map(([pick, how, served]): Part => ({ verb: "release", pick, tombstone: how, to: served })),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(index, fc.integer({ min: 2, max: 4 }))
        .map(([pick, length]): Part => ({ verb: "run", pick, length })),
    },
    { weight: 1, arbitrary: heartbeats.map((all): Part => ({ verb: "renew", heartbeats: all })) },
  );
  // Several of one name at once is what fills queues: one kind for all claims of a tick, or each its own.
  const tick = fc
    .tuple(fc.array(part, { minLength: 2, maxLength: 6 }), sometimes(kind, 2))
    .map(([parts, one]) =>
      one === null
        ? parts
        : parts.map((part) => (part.verb === "claim" ? { ...part, choice: { ...part.choice, kind: one } } : part)),
    );
  const end = fc.tuple(index, fc.constantFrom(-1, 0, 1)).map((parts) => passToEnd(...parts));
  const pass = fc
    .oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 4_000 }), fc.integer({ min: 4_000, max: 70_000 }))
    .map((ms) => passFor(ms));
  const claim = fc.tuple(client, choice).map((parts) => claimOnce(...parts));
  const again = fc.tuple(client, index).map((parts) => claimAgain(...parts));
  const release = fc.tuple(client, index, tombstone, to).map((parts) => releaseOnce(...parts));
  const renew = fc.tuple(client, heartbeats).map((parts) => renewAll(...parts));
  const ticks = fc.tuple(client, tick).map((parts) => callTogether(...parts));
  const lifetime = fc
    .record({
      choice,
      by: client,
      more: fc.constantFrom(-1, 0, 1, null),
      last: fc.constantFrom(...LAST_CALLS),
      tombstone,
      before: fc.nat(2),
      sweep: fc.boolean(),
      clear: seldom,
    })
    .chain((life) => client.map((one) => liveAndCall(one, life)));
  return fc.commands(
    [
      ...[claim, claim, claim, release, release, renew, renew, again, again, ticks, ticks, end, end, pass],
      fc.tuple(client, choice).map((parts) => releaseFirst(...parts)),
      fc.tuple(client, index, fc.nat(3)).map((parts) => resize(...parts)),
      fc
        .tuple(client, fc.constantFrom(1, 1, 3), fc.integer({ min: 1, max: 4 }), seldom)
        .map((all) => setCapacity(...all)),
      ...[lifetime, lifetime],
      client.map(maintain),
      fc.tuple(client, kind).map((parts) => inspect(...parts)),
    ],
    constraints,
  );
}

function command(text: string, run: (pair: VirtualPair) => Promise<unknown>): Command {
  return { check: () => true, run: async (_model, pair) => void (await run(pair)), toString: () => text };
}

const claimOnce = (client: number, choice: ClaimChoice): Command =>
  command(`claim(${client}, ${JSON.stringify(choice)})`, (pair) =>
    pair.call(client, [{ verb: "claim", request: pair.newClaim(client, choice) }]),
  );

const claimAgain = (client: number, pick: number): Command =>
  command(`claim again(${client}, ${pick})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim !== undefined) await pair.call(pair.clientOf(claim, client), [{ verb: "claim", request: claim }]);
  });

/** The claim was sent and is late; its release comes first. */
const releaseFirst = (client: number, choice: ClaimChoice): Command =>
  command(`release first(${client}, ${JSON.stringify(choice)})`, (pair) => {
    const { name, id } = pair.newClaim(client, choice);
    return pair.call(client, [{ verb: "release", request: { name, id } }]);
  });

const releaseOnce = (client: number, pick: number, tombstone: Tombstone, to: number | null): Command =>
  command(`release(${client}, ${pick}, ${tombstone}, to ${to})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim === undefined) return;
    const call = releaseOf(claim, tombstone, servedId(pair, claim, to));
    if (tombstone === "never") pair.forget(claim);
    const [outcome] = await pair.call(client, [call]);
    if (tombstone === "if-missing" && outcome?.verb === "release" && outcome.answer === "released") pair.forget(claim);
  });

function releaseOf({ name, id }: ClaimRequest, tombstone: Tombstone, to?: string): Call {
  return { verb: "release", request: { name, id, tombstone, ...(to === undefined ? {} : { to }) } };
}

/** Any other claim of the name: one that is not served by this release changes nothing. */
function servedId(pair: VirtualPair, { name, id }: ClaimRequest, to: number | null): string | undefined {
  return to === null ? undefined : pair.pick(to, (other) => other.name === name && other.id !== id)?.id;
}

const renewAll = (client: number, heartbeats: readonly HeartbeatChoice[]): Command =>
  command(`renew(${client}, ${JSON.stringify(heartbeats)})`, (pair) =>
    pair.call(
      client,
      renewal(pair, heartbeats, () => true),
    ),
  );

/** One heartbeat each: two for the same claim in one call have no order. */
function renewal(
  pair: VirtualPair,
  choices: readonly HeartbeatChoice[],
  may: (request: RenewRequest) => boolean,
): Call[] {
  const requests = new Map<string, RenewRequest>();
  for (const [n, choice] of choices.entries()) {
    // Not the same token for two of them: which of equal ones is first, no store says.
    const more = choice.atLeast && { ...choice.atLeast, more: choice.atLeast.more + n * 5 };
    const request = pair.heartbeat({ ...choice, atLeast: more });
    if (request !== undefined && may(request)) requests.set(request.id, request);
  }
  return requests.size === 0 ? [] : [{ verb: "renew", requests: [...requests.values()] }];
}

/** Claims and releases of one name keep the order in which they were sent; other verbs only when they come first there. */
const callTogether = (client: number, parts: readonly Part[]): Command =>
  command(`together(${client}, ${JSON.stringify(parts)})`, (pair) => {
    const calls: Call[] = [];
    const used = new Set<string>();
    for (const part of parts) {
      const more = together(pair, client, part, used);
      calls.push(...more);
      for (const name of more.flatMap(namesOf)) used.add(name);
    }
    return pair.call(client, calls);
  });

function together(pair: VirtualPair, client: number, part: Part, used: ReadonlySet<string>): Call[] {
  if (part.verb === "claim") return [{ verb: "claim", request: pair.newClaim(client, part.choice) }];
  if (part.verb === "renew") return renewal(pair, part.heartbeats, ({ name }) => !used.has(name));
  const claim = pair.pick(part.pick);
  if (claim === undefined) return [];
  if (part.verb === "run") return runOfReleases(pair, claim, part.length);
  if (part.verb === "again") return pair.clientOf(claim, client) === client ? [{ verb: "claim", request: claim }] : [];
  const release = releaseOf(claim, part.tombstone, servedId(pair, claim, part.to));
  // Whether it was found is not known before the next calls are sent: it is not sent again in either case.
  if (part.tombstone !== "always") pair.forget(claim);
  return [release];
}

/** As of holds that followed each other inside a client: each says that the next goes on already, wherever that one stands. */
function runOfReleases(pair: VirtualPair, first: ClaimRequest, length: number): Call[] {
  const run = [first];
  while (run.length < length) {
    const next = pair.pick(0, (claim) => claim.name === first.name && !run.includes(claim));
    if (next === undefined) break;
    run.push(next);
  }
  // The claim that waits for the longest comes first, as it mostly does.
  const inOrder = run.toReversed();
  for (const claim of inOrder) pair.forget(claim);
  return inOrder.map((claim, at) => releaseOf(claim, "never", inOrder[at + 1]?.id));
}

const resize = (client: number, pick: number, less: number): Command =>
  command(`resize(${client}, ${pick}, ${less})`, async (pair) => {
    const claim = pair.pick(pick, ({ units }) => units > 1) ?? pair.pick(pick);
    if (claim === undefined) return;
    const units = Math.max(1, claim.units + 1 - less);
    await pair.call(client, [{ verb: "resize", ref: { name: claim.name, id: claim.id }, units }]);
  });

const setCapacity = (client: number, kind: number, to: number, strange: boolean): Command =>
  command(`set capacity(${client}, kind ${kind}, ${to}, strange ${strange})`, (pair) =>
    pair.call(client, [pair.capacity(kind, to, strange)]),
  );

const inspect = (client: number, kind: number): Command =>
  command(`inspect(${client}, kind ${kind})`, (pair) =>
    pair.call(client, [{ verb: "inspect", name: pair.name(kind) }]),
  );

/** Longer than any lease and tombstone lasts. */
const LONGEST_MS = 121_000;

/** What is asked about a claim when its time is over, or nearly. */
const LAST_CALLS = ["release", "release", "release", "again", "renew", "resize", "inspect"] as const;
type Life = {
  readonly choice: ClaimChoice;
  readonly by: number;
  /** So much after its end; null: at once. */
  readonly more: number | null;
  readonly last: (typeof LAST_CALLS)[number];
  readonly tombstone: Tombstone;
  /** How often the same client takes and gives back the name before, when no late copy can come: the shortest way of a store. */
  readonly before: number;
  /** The store cleans up after each of these: it must not forget how high the tokens were. */
  readonly sweep: boolean;
  /** First all leases and tombstones end. */
  readonly clear: boolean;
};

function lastCall(claim: ClaimRequest, { last, tombstone }: Life): Call {
  const { name, id } = claim;
  const calls: Record<Life["last"], Call> = {
    release: releaseOf(claim, tombstone),
    again: { verb: "claim", request: claim },
    renew: { verb: "renew", requests: [{ name, id }] },
    resize: { verb: "resize", ref: { name, id }, units: 1 },
    inspect: { verb: "inspect", name },
  };
  return calls[last];
}

/** One claim from its beginning to the moment when its lease ends, where the next question is the first to find out. */
const liveAndCall = (client: number, life: Life): Command =>
  command(`live(${client}, ${JSON.stringify(life)})`, async (pair) => {
    if (life.clear) await pair.pass(LONGEST_MS);
    for (let times = 0; times < life.before; times += 1) {
      const before = pair.newClaim(client, { ...life.choice, wait: false });
      pair.forget(before);
      await pair.call(client, [{ verb: "claim", request: before }]);
      await pair.call(client, [releaseOf(before, "never")]);
      if (life.sweep) await pair.maintain(client);
    }
    const claim = pair.newClaim(client, life.choice);
    const [outcome] = await pair.call(client, [{ verb: "claim", request: claim }]);
    const kind = outcome?.verb === "claim" ? outcome.answer.kind : "gone";
    const leaseMs = kind === "queued" ? waiterLeaseMs(claim.leaseMs) : claim.leaseMs;
    if (life.more !== null) await pair.pass(Math.max(1, leaseMs + life.more));
    const by = life.last === "again" ? pair.clientOf(claim, life.by) : life.by;
    if (life.last === "release" && life.tombstone !== "always") pair.forget(claim);
    await pair.call(by, [lastCall(claim, life)]);
  });

const maintain = (client: number): Command => command(`maintain(${client})`, (pair) => pair.maintain(client));

const passFor = (ms: number): Command => command(`pass(${ms} ms)`, (pair) => pair.pass(ms));

/** To the very moment when something ends, and to just before and after it. */
const passToEnd = (index: number, more: number): Command =>
  command(`pass to end(${index}, ${more} ms)`, (pair) => pair.pass(Math.max(1, pair.untilEnd(index) + more)));
