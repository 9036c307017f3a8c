import type { Client } from "../core/client.js";
import { EngineRefusedError, EngineUnavailableError, HoldfastError, UnsupportedError } from "../core/errors.js";
import type { Guarantees } from "../core/guarantees.js";
import { checkHealth, type Health } from "../core/health.js";
import { type NameState, ownerText } from "../core/inspect.js";
import { findDeadlock, stakeOf } from "../recipes/deadlock-graph.js";
import { type Command, flag, type Given, JSON_OPTION, seconds, text, URL_OPTION, UsageError } from "./command.js";
import { ageText } from "./describe.js";
import { exitCodeOf, type Finding, findingsText, monitorLine, watchFindings, worstOf } from "./findings.js";
import { printEither } from "./print.js";
import { shellWord } from "./printable.js";
import { hideSecrets, withoutSecrets } from "./secrets.js";
import { openStore, type Store, urlOf } from "./store.js";

/** Clocks that differ by more than this are not synchronized. */
const CLOCK_MAX_MS = 1_000;
const NAMES_MAX = 10_000;
const EVERY_MS = 10_000;
const EVERY_MIN_MS = 50;

export const doctor: Command = {
  usage: "doctor [options]",
  summary: "check the store and what it guarantees, and say what to do",
  options: {
    ...URL_OPTION,
    require: {
      type: "string",
      value: "KEY=VALUE,...",
      help: "guarantees to demand, such as exclusion=consensus",
    },
    watch: { type: "boolean", help: "check again and again, and print what changes, until Ctrl-C" },
    every: { type: "string", value: "SECONDS", help: "with --watch: how often (10)" },
    monitor: { type: "boolean", help: "one line and the exit codes of monitoring plugins: 0 ok, 1 mind, 2 bad" },
    ...JSON_OPTION,
  },
  examples: [
    "holdfast doctor",
    "holdfast doctor --require exclusion=one-machine,order=fifo",
    "holdfast doctor --monitor",
  ],
  async main(given) {
    if (given.words.length > 0) throw new UsageError("it takes no name");
    const wanted = wantedOf(text(given, "require"));
    const everyMs = Math.max(EVERY_MIN_MS, seconds(given, "every") ?? EVERY_MS);
    const [json, monitor] = [flag(given, "json"), flag(given, "monitor")];
    const check = (): Promise<Finding[]> => findingsOf(given, wanted);
    if (flag(given, "watch")) return exitCodeOf(await watchFindings(check, everyMs, json), monitor);
    const findings = await check();
    const healthy = worstOf(findings) !== "bad";
    const toText = monitor ? monitorLine : findingsText;
    await printEither(given, { healthy, findings }, () => toText(findings));
    return exitCodeOf(findings, monitor);
  },
};

async function findingsOf(given: Given, wanted: ReadonlyMap<string, string>): Promise<Finding[]> {
  const url = urlOf(given);
  const shown = url === undefined ? "none given: the file of this user" : withoutSecrets(url);
  const known: Finding = { check: "url", state: "good", says: shown };
  let store: Store | null = null;
  try {
    store = await openStore(given);
    const library: Finding = { check: "client library", state: "good", says: "loaded" };
    const answers: Finding = { check: "store", state: "good", says: `${store.client.engine.kind} answers` };
    return [known, library, answers, ...(await examine(store.client, wanted))];
  } catch (error) {
    return whyNot(error, known);
  } finally {
    await store?.close();
  }
}

/** It could not be opened, or went away. */
function whyNot(error: unknown, known: Finding): Finding[] {
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
  const health = await checkHealth(client);
  const rights = checkRights(health);
  const guarantees = checkGuarantees(client.engine.guarantees, wanted);
  if (!health.healthy) return [rights, ...guarantees];
  return [rights, checkClock(client, health.clockAheadMs), ...guarantees, await checkDeadlocks(client)];
}

/** By taking a lock of its own. */
function checkRights({ healthy, error, tookMs }: Health): Finding {
  const check = "rights";
  if (healthy) {
    const says = `a lock was taken, seen, renewed and given back in ${ageText(tookMs)}`;
    return { check, state: "good", says };
  }
  const advice = error instanceof EngineRefusedError ? error.advice : "See what the store's own log says.";
  return { check, state: "bad", says: hideSecrets(error?.message ?? "it gives no lock"), advice };
}

function checkClock(client: Client, difference: number | undefined): Finding {
  const check = "clock";
  if (difference === undefined)
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
      const advice = "Use a store that guarantees it (the README has a table), or demand less.";
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
  const { answer: states } = await client.ask("reading the names in use", () => names(client));
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

async function names(client: Client): Promise<NameState[]> {
  const states: NameState[] = [];
  for await (const state of client.inspect({}, NAMES_MAX)) states.push(state);
  return states;
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
