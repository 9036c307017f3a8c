// A fleet of processes of two versions on one store, judged by its history.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import type * as Library from "../../src/index.js";
import type { Locks } from "../../src/locks.js";
import { checkHistory, type Held, type History } from "../../src/testing/history.js";
import type { Place } from "../../test/servers/places.js";
import type { Package } from "./packages.js";

/** Two versions beside each other: figures of the first and of the second. */
type Both = readonly [older: number, newer: number];

export type FleetResult = {
  readonly store: string;
  readonly holds: Both;
  /** From one version to the other, to whoever waited: to the older, to the newer. */
  readonly handOvers: Both;
  /** A hold that one version handed over to the other, to be continued; null where the store cannot. */
  readonly continued: Both | null;
  /** Additions to one counter by both, and its value then; null where the store has no cells. */
  readonly added: readonly [added: number, counted: number] | null;
  readonly lost: number;
  readonly violations: readonly string[];
};

const PROGRAM = join(import.meta.dirname, "member.mjs");
/** The rules compare every hold of a name with every other: of long runs so many at a time, each of them in two such windows. */
const WINDOW = 400;

export async function openLibrary({ dist }: Package): Promise<typeof Library> {
  return (await import(pathToFileURL(join(dist, "index.js")).href)) as typeof Library;
}

/** A quorum keeps no cells. */
export const hasCells = ({ url }: Place): boolean => !url.startsWith("redlock:");

/** On a busy machine a member of a quorum needs longer than it is given by default. */
export const optionsOf = (place: Place): Place["options"] & object =>
  hasCells(place) ? (place.options ?? {}) : { ...place.options, memberTimeoutMs: 2000 };

type Answer = { readonly history: History; readonly added: number };

type Member = { readonly ready: Promise<unknown>; go(): void; readonly answer: Promise<Answer>; kill(): void };

function start(input: object): Member {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(input)], { stdio: ["pipe", "pipe", "pipe"] });
  let said = "";
  child.stderr.on("data", (text: Buffer) => (said += text.toString()));
  const lines: ((line: string) => void)[] = [];
  const failed: ((error: Error) => void)[] = [];
  const line = (): Promise<unknown> =>
    new Promise((resolve, reject) => {
      lines.push((text) => resolve(JSON.parse(text)));
      failed.push(reject);
    });
  const [ready, answer] = [line(), line() as Promise<Answer>];
  // Whoever awaits the first is told; then nobody awaits the second.
  answer.catch(() => {});
  createInterface({ input: child.stdout }).on("line", (text) => lines.shift()?.(text));
  child.on("error", (error) => failed.forEach((fail) => fail(error)));
  child.on("close", (code) => failed.forEach((fail) => fail(new Error(`a member ended (${code}): ${said}`))));
  return { ready, answer, go: () => child.stdin.write("\n"), kill: () => child.kill("SIGKILL") };
}

/** `each` processes of both versions for so long. */
export async function runFleet(
  store: string,
  place: Place,
  versions: readonly [Package, Package],
  ms: number,
  each = 2,
): Promise<FleetResult> {
  const { url } = place;
  const options = optionsOf(place);
  const libraries = await Promise.all(versions.map(openLibrary));
  const [older, newer] = (await Promise.all(libraries.map(({ connect }) => connect(url, options)))) as [Locks, Locks];
  const counts = hasCells(place);
  const versionOf = (client: number): number => client % 2;
  const members = Array.from({ length: 2 * each }, (_, client) => {
    const dist = versions[versionOf(client)]?.dist;
    return start({ dist, url, options, seed: client + 1, ms, counts });
  });
  try {
    await Promise.all(members.map(({ ready }) => ready));
    for (const member of members) member.go();
    const answers = await Promise.all(members.map(({ answer }) => answer));
    const history = merged(answers.map((one) => one.history));
    const added = answers.reduce((sum, one) => sum + one.added, 0);
    const { order } = newer.guarantees;
    const violations = judge(history, { order, ties: order !== "fifo", lateMs: 1000 });
    const continued = async (): Promise<Both> => [
      await continues(newer, older, violations),
      await continues(older, newer, violations),
    ];
    return {
      store,
      holds: both(history.holds.map(({ client }) => versionOf(client))),
      handOvers: both(handOvers(history.holds, versionOf)),
      continued: store === "zookeeper" ? null : await continued(),
      added: counts ? [added, await newer.counter("counted").get()] : null,
      lost: history.holds.filter(({ ended }) => ended === "lost").length,
      violations,
    };
  } finally {
    for (const member of members) member.kill();
    await Promise.all([older.close(), newer.close()]);
  }
}

function merged(histories: readonly History[]): History {
  const own = <T extends { readonly client: number }>(of: (history: History) => readonly T[]): T[] =>
    histories.flatMap((history, client) => of(history).map((one) => ({ ...one, client })));
  return {
    attempts: own(({ attempts }) => attempts),
    holds: own(({ holds }) => holds),
    writes: [],
    pauses: own(({ pauses }) => pauses),
  };
}

function byName(holds: readonly Held[]): Held[][] {
  const names = new Set(holds.map(({ name }) => name));
  return [...names].map((name) =>
    holds.filter((hold) => hold.name === name).toSorted((one, two) => one.grantedAt - two.grantedAt),
  );
}

function judge(history: History, rules: Parameters<typeof checkHistory>[1]): string[] {
  const found = new Set<string>();
  for (const holds of byName(history.holds)) {
    for (let at = 0; at === 0 || at + WINDOW / 2 < holds.length; at += WINDOW / 2) {
      const part = { ...history, holds: holds.slice(at, at + WINDOW) };
      for (const { rule, what } of checkHistory(part, rules)) found.add(`${rule}: ${what}`);
    }
  }
  return [...found];
}

/** Of every hold that was waited for while one of the other version held: its version. */
function handOvers(holds: readonly Held[], versionOf: (client: number) => number): number[] {
  return byName(holds).flatMap((list) => {
    const ended = list
      .filter(({ endedAt }) => endedAt !== null)
      .toSorted((a, b) => (a.endedAt ?? 0) - (b.endedAt ?? 0));
    return list.flatMap((hold) => {
      const { client, queuedAt, grantedAt } = hold;
      if (queuedAt === null) return [];
      const before = ended[firstAfter(ended, grantedAt) - 1];
      if (before === undefined || (before.endedAt ?? 0) < queuedAt) return [];
      return versionOf(before.client) === versionOf(client) ? [] : [versionOf(client)];
    });
  });
}

/** Where the first stands that ended after this time. */
function firstAfter(ended: readonly Held[], time: number): number {
  let [low, high] = [0, ended.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ended[middle]?.endedAt ?? 0) <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function both(versions: readonly number[]): Both {
  const newer = versions.filter((version) => version === 1).length;
  return [versions.length - newer, newer];
}

/** One version takes a lock, the other goes on with it under the same token and gives it back. What goes wrong is a violation. */
async function continues(from: Locks, to: Locks, violations: string[]): Promise<number> {
  const hold = await from.mutex("continued").acquire({ waitMs: 30_000, leaseMs: 60_000 });
  try {
    const adopted = await to.adopt(JSON.parse(JSON.stringify(hold.handOver())));
    if (adopted.token !== hold.token) throw new Error("the token changed on the way");
    await adopted.release();
    return 1;
  } catch (error) {
    violations.push(`continued by the other version: ${String(error)}`);
    return 0;
  }
}
