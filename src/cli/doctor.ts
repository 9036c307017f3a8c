import type { Client } from "../core/client.js";
import { EngineRefusedError, EngineUnavailableError, HoldfastError, UnsupportedError } from "../core/errors.js";
import type { Guarantees } from "../core/guarantees.js";
import { type NameState, ownerText } from "../core/inspect.js";
import { findDeadlock, stakeOf } from "../recipes/deadlock-graph.js";
import { type Command, EXIT, JSON_OPTION, text, URL_OPTION, UsageError } from "./command.js";
import { ageText } from "./describe.js";
import { dim, green, print, printEither, red, yellow } from "./print.js";
import { printable, shellWord } from "./printable.js";
import { hideSecrets, withoutSecrets } from "./secrets.js";
import { openStore, type Store, urlOf } from "./store.js";

/** What one check found. `advice`: what to do about it, whenever it is not simply good. */
type Finding = {
  readonly check: "url" | "client library" | "store" | "rights" | "clock" | "guarantees" | "deadlocks";
  readonly state: "good" | "mind" | "bad";
  readonly says: string;
  readonly advice?: string;
};

/** Clocks that differ by more than this are not synchronized. */
const CLOCK_MAX_MS = 1_000;
const NAMES_MAX = 10_000;
const LEASE_MS = 10_000;

export const doctor: Command = {
  usage: "doctor [options]",
  summary: "check the store and what it guarantees, and say what to do",
  options: {
    ...URL_OPTION,
    require: {
      type: "string",
      value: "KEY=VALUE,...",
      help: "guarantees to retryOpen on, such as exclusion=consensus",
    },
    ...JSON_OPTION,
  },
  examples: ["holdfast doctor", "holdfast doctor --require exclusion=one-machine,order=fifo"],
  async main(given) {
    if (given.words.length > 0) throw new UsageError("it takes no name");
    const wanted = wantedOf(text(given, "require"));
    const findings: Finding[] = [];
    const { store, found } = await open(() => openStore(given), urlOf(given));
    findings.push(...found);
    if (store !== null) {
      try {
        findings.push(...(await examine(store.client, wanted)));
      } finally {
        await store.close();
      }
    }
    const bad = findings.some(({ state }) => state === "bad");
    await printEither(given, { healthy: !bad, findings }, () => findings.map(lineOf).join("\n"));
    if (bad && given.values.json !== true) await print(red("Something is wrong; see above what to do."));
    return bad ? EXIT.conflict : EXIT.ok;
  },
};

async function open(
  opening: () => Promise<Store>,
  url: string | undefined,
): Promise<{ readonly store: Store | null; readonly found: readonly Finding[] }> {
  const shown = url === undefined ? "none given: the file of this user" : withoutSecrets(url);
  const known: Finding = { check: "url", state: "good", says: shown };
  try {
    const store = await opening();
    const library: Finding = { check: "client library", state: "good", says: "loaded" };
    const answers: Finding = { check: "store", state: "good", says: `${store.client.engine.kind} answers` };
    return { store, found: [known, library, answers] };
  } catch (error) {
    return { store: null, found: whyNotOpened(error, known) };
  }
}

function whyNotOpened(error: unknown, known: Finding): Finding[] {
  const says = hideSecrets(error instanceof Error ? error.message : String(error));
  const bad = (check: Finding["check"], advice: string): Finding => ({ check, state: "bad", says, advice });
  if (error instanceof UnsupportedError) {
    const library = /npm install/.test(error.advice);
    return [known, bad(library ? "client library" : "store", error.advice)];
  }
  if (error instanceof EngineRefusedError) return [known, bad("rights", error.advice)];
  if (error instanceof EngineUnavailableError) {
    const advice = "See that the server runs, that host and port are right, and that no firewall stands between.";
    return [known, bad("store", advice)];
  }
  if (error instanceof HoldfastError || error instanceof UsageError) {
    return [bad("url", "Correct --url or HOLDFAST_URL; holdfast doctor --help has an example.")];
  }
  throw error;
}

async function examine(client: Client, wanted: ReadonlyMap<string, string>): Promise<Finding[]> {
  const { finding, difference } = await tryLock(client);
  const guarantees = checkGuarantees(client.engine.guarantees, wanted);
  if (finding.state === "bad") return [finding, ...guarantees];
  return [finding, checkClock(client, difference), ...guarantees, await checkDeadlocks(client)];
}

/** Tokens of most stores are the time of the request in µs; those of ZooKeeper and etcd are small counts. */
const YEAR_MS = 365 * 24 * 60 * 60 * 1000;

/** When a token was minted, by the store's clock; null where it does not say. */
function mintedAt(token: number, nowMs: number): number | null {
  const atMs = token / 1000;
  return Math.abs(nowMs - atMs) < YEAR_MS ? atMs : null;
}

/** A whole life of a claim, under a name that nobody else uses; its token says what the store's clock says. */
async function tryLock(client: Client): Promise<{ finding: Finding; difference: number | null }> {
  const name = `holdfast-doctor/${client.chance.id()}`;
  const ref = { name, id: client.chance.id() };
  const claim = { ...ref, units: 1, capacity: 1, leaseMs: LEASE_MS, wait: false, owner: client.owner };
  try {
    const before = client.clock.wallMs();
    const { answer } = await client.ask("taking a lock", () => client.engine.claim(claim));
    const after = client.clock.wallMs();
    const seen = (await client.state(name))?.holders.length === 1;
    await client.ask("renewing it", () => client.engine.renew([ref]));
    await client.release(ref, "always", client.settings.callTimeoutMs);
    if (answer.kind !== "granted" || !seen) throw new Error(`a new lock was ${answer.kind}`);
    const at = mintedAt(answer.token, after);
    const difference = at === null ? null : at < before ? at - before : Math.max(0, at - after);
    const says = `a lock was taken, seen, renewed and given back in ${ageText(after - before)}`;
    return { finding: { check: "rights", state: "good", says }, difference };
  } catch (error) {
    const advice = error instanceof EngineRefusedError ? error.advice : "See what the store's own log says.";
    const says = hideSecrets(error instanceof Error ? error.message : String(error));
    return { finding: { check: "rights", state: "bad", says, advice }, difference: null };
  }
}

function checkClock(client: Client, difference: number | null): Finding {
  const check = "clock";
  if (difference === null)
    return { check, state: "good", says: `${client.engine.kind} counts instead of reading a clock` };
  if (Math.abs(difference) <= CLOCK_MAX_MS) {
    return { check, state: "good", says: `the store's and ours agree to ${ageText(Math.abs(difference))}` };
  }
  const says = `the store's is ${ageText(Math.abs(difference))} ${difference > 0 ? "ahead of" : "behind"} ours`;
  const advice =
    client.engine.kind === "sqlite"
      ? "This machine's clock was set back: tokens go on from where they were. Have it set by NTP."
      : "Locks do not need equal clocks, but tokens are minted from the store's: after a fail-over to a server whose clock is behind they may repeat. Have both set by NTP.";
  return { check, state: "mind", says, advice };
}

const WORRIES: readonly (readonly [keyof Guarantees, Guarantees[keyof Guarantees], string])[] = [
  [
    "exclusion",
    "until-failover",
    "A promoted replica may not know a lock: let the resource check the token, wait for replicas, or use a store with consensus.",
  ],
  ["wake", "poll", "Waiters ask again and again: connect past the pooler, or allow the store to push."],
  ["token", "none", "The resource cannot tell an old holder from a new one: use a store that mints tokens."],
];

function checkGuarantees(guarantees: Guarantees, wanted: ReadonlyMap<string, string>): Finding[] {
  const check = "guarantees";
  const says = Object.entries(guarantees)
    .map(([key, value]) => `${key} ${String(value)}`)
    .join(", ");
  const unmet = [...wanted].filter(([key, value]) => String(guarantees[key as keyof Guarantees]) !== value);
  const worries = WORRIES.filter(([key, value]) => guarantees[key] === value);
  return [
    ...unmet.map(([key, value]): Finding => {
      const actual = String(guarantees[key as keyof Guarantees] ?? "nothing of that name");
      const advice = "Use a store that guarantees it (the README has a table), or retryOpen on less.";
      return { check, state: "bad", says: `${key} must be ${value}, and it guarantees ${actual}`, advice };
    }),
    ...worries.map(
      ([key, value, advice]): Finding => ({ check, state: "mind", says: `${key}: ${String(value)}`, advice }),
    ),
    { check, state: "good", says },
  ];
}

/** Only programs that look for deadlocks themselves (`detectDeadlockAfterMs`) say what they hold while they wait. */
async function checkDeadlocks(client: Client): Promise<Finding> {
  const check = "deadlocks";
  const states: NameState[] = [];
  for await (const state of client.inspect({})) {
    states.push(state);
    if (states.length >= NAMES_MAX) break;
  }
  const stakes = states.flatMap(({ waiters }) => waiters.flatMap((waiter) => stakeOf(waiter) ?? []));
  for (const { flow } of stakes) {
    const deadlock = findDeadlock(states, flow);
    if (deadlock === null) continue;
    const links = deadlock.cycle.map(
      ({ owner, holds, waitsFor }) => `${ownerText(owner)} holds ${holds.join(" and ")} and waits for ${waitsFor}`,
    );
    const name = deadlock.cycle[0]?.holds[0] ?? "";
    const advice = `Take locks in one order everywhere. For now stop one of them, or take its lock: holdfast release --force -- ${shellWord(name)}`;
    return { check, state: "bad", says: links.join("; "), advice };
  }
  return { check, state: "good", says: `none among ${states.length} names and ${stakes.length} waits that tell` };
}

function wantedOf(list: string | undefined): ReadonlyMap<string, string> {
  const pairs = (list ?? "").split(",").filter((pair) => pair !== "");
  return new Map(
    pairs.map((pair) => {
      const [key = "", value] = pair.split("=");
      if (value === undefined) throw new UsageError(`--require takes KEY=VALUE,..., not "${pair}"`);
      return [key, value];
    }),
  );
}

const MARKS = { good: green("ok  "), mind: yellow("mind"), bad: red("BAD ") } as const;

function lineOf({ check, state, says, advice }: Finding): string {
  const line = `${MARKS[state]}  ${check.padEnd(14)}  ${printable(says)}`;
  return advice === undefined ? line : `${line}\n${" ".repeat(22)}${dim("->")} ${printable(advice)}`;
}
