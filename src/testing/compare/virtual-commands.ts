import type { Arbitrary, AsyncCommand, CommandsContraints } from "fast-check";
import type { ClaimRequest, RenewRequest, Tombstone } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import {
  type Ask,
  DATA_COUNT,
  KIND_COUNT,
  LEASE_COUNT,
  namesOf,
  type Pair,
  type SignAsk,
  type Suggestion,
} from "./pair.js";
import type { Request } from "./reference.js";

type FastCheck = typeof import("fast-check");
type Command = AsyncCommand<object, Pair>;

/** How a claim is given back: half of them in the common way. */
const TOMBSTONES = ["always", "always", "never", "if-missing"] as const satisfies readonly Tombstone[];

/** One request of several in a tick. */
type Part =
  | { readonly verb: "claim"; readonly ask: Ask }
  | { readonly verb: "again"; readonly pick: number }
  | { readonly verb: "release"; readonly pick: number; readonly tombstone: Tombstone }
  | { readonly verb: "renew"; readonly signs: readonly SignAsk[] };

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
  const ask: Arbitrary<Ask> = fc.record({
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
  });
  const sign: Arbitrary<SignAsk> = fc.record({ pick: index, lease: sometimes(lease, 2), atLeast });
  const signs = fc.array(sign, { minLength: 1, maxLength: 5 });
  const tombstone = fc.constantFrom(...TOMBSTONES);
  const part: Arbitrary<Part> = fc.oneof(
    { weight: 4, arbitrary: ask.map((one): Part => ({ verb: "claim", ask: one })) },
    { weight: 1, arbitrary: index.map((pick): Part => ({ verb: "again", pick })) },
    {
      weight: 3,
      arbitrary: fc.tuple(index, tombstone).map(([pick, how]): Part => ({ verb: "release", pick, tombstone: how })),
    },
    { weight: 1, arbitrary: signs.map((all): Part => ({ verb: "renew", signs: all })) },
  );
  // Several of one name at once is what fills queues: one kind for all claims of a tick, or each its own.
  const tick = fc
    .tuple(fc.array(part, { minLength: 2, maxLength: 6 }), sometimes(kind, 2))
    .map(([parts, one]) =>
      one === null
        ? parts
        : parts.map((part) => (part.verb === "claim" ? { ...part, ask: { ...part.ask, kind: one } } : part)),
    );
  const end = fc.tuple(index, fc.constantFrom(-1, 0, 1)).map((parts) => passToEnd(...parts));
  const pass = fc
    .oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 4_000 }), fc.integer({ min: 4_000, max: 70_000 }))
    .map((ms) => passFor(ms));
  const claim = fc.tuple(client, ask).map((parts) => claimOnce(...parts));
  const again = fc.tuple(client, index).map((parts) => claimAgain(...parts));
  const release = fc.tuple(client, index, tombstone).map((parts) => releaseOnce(...parts));
  const renew = fc.tuple(client, signs).map((parts) => renewAll(...parts));
  const ticks = fc.tuple(client, tick).map((parts) => askTogether(...parts));
  const lifetime = fc
    .record({
      ask,
      by: client,
      more: fc.constantFrom(-1, 0, 1, null),
      last: fc.constantFrom(...LAST_WORDS),
      tombstone,
      before: fc.nat(2),
      sweep: fc.boolean(),
      clear: seldom,
    })
    .chain((life) => client.map((one) => liveAndAsk(one, life)));
  return fc.commands(
    [
      ...[claim, claim, claim, release, release, renew, renew, again, again, ticks, ticks, end, end, pass],
      fc.tuple(client, ask).map((parts) => releaseFirst(...parts)),
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

function command(text: string, run: (pair: Pair) => Promise<unknown>): Command {
  return { check: () => true, run: async (_model, pair) => void (await run(pair)), toString: () => text };
}

const claimOnce = (client: number, ask: Ask): Command =>
  command(`claim(${client}, ${JSON.stringify(ask)})`, (pair) =>
    pair.ask(client, [{ verb: "claim", claim: pair.newClaim(client, ask) }]),
  );

const claimAgain = (client: number, pick: number): Command =>
  command(`claim again(${client}, ${pick})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim !== undefined) await pair.ask(pair.clientOf(claim, client), [{ verb: "claim", claim }]);
  });

/** The claim was sent and not heard of yet; its release comes first. */
const releaseFirst = (client: number, ask: Ask): Command =>
  command(`release first(${client}, ${JSON.stringify(ask)})`, (pair) => {
    const { name, id } = pair.newClaim(client, ask);
    return pair.ask(client, [{ verb: "release", leave: { name, id } }]);
  });

const releaseOnce = (client: number, pick: number, tombstone: Tombstone): Command =>
  command(`release(${client}, ${pick}, ${tombstone})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim === undefined) return;
    if (tombstone === "never") pair.forget(claim);
    const [outcome] = await pair.ask(client, [leaving(claim, tombstone)]);
    if (tombstone === "if-missing" && outcome?.verb === "release" && outcome.answer === "released") pair.forget(claim);
  });

function leaving({ name, id }: ClaimRequest, tombstone: Tombstone): Request {
  return { verb: "release", leave: { name, id, tombstone } };
}

const renewAll = (client: number, signs: readonly SignAsk[]): Command =>
  command(`renew(${client}, ${JSON.stringify(signs)})`, (pair) =>
    pair.ask(
      client,
      renewal(pair, signs, () => true),
    ),
  );

/** One sign each: two for the same claim in one call have no order. */
function renewal(pair: Pair, asks: readonly SignAsk[], may: (sign: RenewRequest) => boolean): Request[] {
  const signs = new Map<string, RenewRequest>();
  for (const [n, ask] of asks.entries()) {
    // Not the same token for two of them: which of equal ones is first, no store says.
    const more = ask.atLeast && { ...ask.atLeast, more: ask.atLeast.more + n * 5 };
    const sign = pair.sign({ ...ask, atLeast: more });
    if (sign !== undefined && may(sign)) signs.set(sign.id, sign);
  }
  return signs.size === 0 ? [] : [{ verb: "renew", signs: [...signs.values()] }];
}

/** Claims and releases of one name keep the order in which they were asked; other verbs only when they come first there. */
const askTogether = (client: number, parts: readonly Part[]): Command =>
  command(`together(${client}, ${JSON.stringify(parts)})`, (pair) => {
    const requests: Request[] = [];
    const used = new Set<string>();
    for (const part of parts) {
      const more = together(pair, client, part, used);
      requests.push(...more);
      for (const name of more.flatMap(namesOf)) used.add(name);
    }
    return pair.ask(client, requests);
  });

function together(pair: Pair, client: number, part: Part, used: ReadonlySet<string>): Request[] {
  if (part.verb === "claim") return [{ verb: "claim", claim: pair.newClaim(client, part.ask) }];
  if (part.verb === "renew") return renewal(pair, part.signs, ({ name }) => !used.has(name));
  const claim = pair.pick(part.pick);
  if (claim === undefined) return [];
  if (part.verb === "again") return pair.clientOf(claim, client) === client ? [{ verb: "claim", claim }] : [];
  // Its fate is not known before others ask: not heard of again in either case.
  if (part.tombstone !== "always") pair.forget(claim);
  return [leaving(claim, part.tombstone)];
}

const resize = (client: number, pick: number, less: number): Command =>
  command(`resize(${client}, ${pick}, ${less})`, async (pair) => {
    const claim = pair.pick(pick, ({ units }) => units > 1) ?? pair.pick(pick);
    if (claim === undefined) return;
    const units = Math.max(1, claim.units + 1 - less);
    await pair.ask(client, [{ verb: "resize", ref: { name: claim.name, id: claim.id }, units }]);
  });

const setCapacity = (client: number, kind: number, to: number, strange: boolean): Command =>
  command(`set capacity(${client}, kind ${kind}, ${to}, strange ${strange})`, (pair) =>
    pair.ask(client, [pair.capacity(kind, to, strange)]),
  );

const inspect = (client: number, kind: number): Command =>
  command(`inspect(${client}, kind ${kind})`, (pair) => pair.ask(client, [{ verb: "inspect", name: pair.name(kind) }]));

/** Longer than any lease and mark lasts. */
const LONGEST_MS = 121_000;

/** What is asked about a claim when its time is over, or nearly. */
const LAST_WORDS = ["release", "release", "release", "again", "renew", "resize", "inspect"] as const;
type Life = {
  readonly ask: Ask;
  readonly by: number;
  /** So much after its end; null: at once. */
  readonly more: number | null;
  readonly last: (typeof LAST_WORDS)[number];
  readonly tombstone: Tombstone;
  /** How often the same client takes and gives back the name before, when no late copy can come: the shortest way of a store. */
  readonly before: number;
  /** The store cleans up after each of these: it must not forget how high the tokens were. */
  readonly sweep: boolean;
  /** First all leases and marks end. */
  readonly clear: boolean;
};

function lastWord(claim: ClaimRequest, { last, tombstone }: Life): Request {
  const { name, id } = claim;
  const requests: Record<Life["last"], Request> = {
    release: leaving(claim, tombstone),
    again: { verb: "claim", claim },
    renew: { verb: "renew", signs: [{ name, id }] },
    resize: { verb: "resize", ref: { name, id }, units: 1 },
    inspect: { verb: "inspect", name },
  };
  return requests[last];
}

/** One claim from its beginning to the moment when its lease ends, where the next question is the first to find out. */
const liveAndAsk = (client: number, life: Life): Command =>
  command(`live(${client}, ${JSON.stringify(life)})`, async (pair) => {
    if (life.clear) await pair.pass(LONGEST_MS);
    for (let times = 0; times < life.before; times += 1) {
      const before = pair.newClaim(client, { ...life.ask, wait: false });
      pair.forget(before);
      await pair.ask(client, [{ verb: "claim", claim: before }]);
      await pair.ask(client, [leaving(before, "never")]);
      if (life.sweep) await pair.maintain(client);
    }
    const claim = pair.newClaim(client, life.ask);
    const [outcome] = await pair.ask(client, [{ verb: "claim", claim }]);
    const kind = outcome?.verb === "claim" ? outcome.answer.kind : "gone";
    const leaseMs = kind === "queued" ? waiterLeaseMs(claim.leaseMs) : claim.leaseMs;
    if (life.more !== null) await pair.pass(Math.max(1, leaseMs + life.more));
    const by = life.last === "again" ? pair.clientOf(claim, life.by) : life.by;
    if (life.last === "release" && life.tombstone !== "always") pair.forget(claim);
    await pair.ask(by, [lastWord(claim, life)]);
  });

const maintain = (client: number): Command => command(`maintain(${client})`, (pair) => pair.maintain(client));

const passFor = (ms: number): Command => command(`pass(${ms} ms)`, (pair) => pair.pass(ms));

/** To the very moment when something ends, and to just before and after it. */
const passToEnd = (index: number, more: number): Command =>
  command(`pass to end(${index}, ${more} ms)`, (pair) => pair.pass(Math.max(1, pair.untilEnd(index) + more)));
