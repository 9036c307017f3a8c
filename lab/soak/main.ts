import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { install } from "../../test/servers/packages.js";
import { brokenLibrary } from "../broken.js";
import { progress } from "../lib/progress.js";
import { ROOT } from "../lib/results.js";
import { tableOf } from "./report.js";
import { type Result, Soak } from "./soak.js";
import { STORES, type Store } from "./stores.js";

const NAMES = STORES.map(({ name }) => name).join(", ");

const USAGE = `npm run soak -- [--minutes 30 | --seconds n] [--seed n] [--workers 4] [engine …]
Processes take locks on a store, one store after the other, for so many minutes each, while they are killed and stopped, their
connections cut, and the servers restarted, as the seed has it. Engines: ${NAMES}; all of them unless some are named.
--out folder: where the history of a violation is written. --json: the results as JSON.
--broken tokens|deadline|twice|lease: with the library broken on purpose, to see that the soak notices.`;

const OPTIONS = {
  minutes: { type: "string" },
  seconds: { type: "string" },
  seed: { type: "string" },
  workers: { type: "string", default: "4" },
  out: { type: "string", default: join(tmpdir(), "holdfast-soak") },
  json: { type: "boolean", default: false },
  broken: { type: "string" },
  help: { type: "boolean", default: false },
} as const;

const MINUTES = 30;
const HOURS_MAX = 24;

function read() {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { ...OPTIONS } });
  if (values.help) return null;
  if (values.minutes !== undefined && values.seconds !== undefined) throw new Error("--minutes or --seconds, not both");
  const number = (option: string, text: string, least: number, most: number, whole = true): number => {
    const value = text.trim() === "" ? NaN : Number(text);
    const fits = value >= least && value <= most && (!whole || Number.isSafeInteger(value));
    if (!fits)
      throw new Error(`--${option} is a ${whole ? "whole " : ""}number from ${least} to ${most}, not "${text}"`);
    return value;
  };
  const ms =
    values.seconds === undefined
      ? 60_000 * number("minutes", values.minutes ?? String(MINUTES), 0.05, 60 * HOURS_MAX, false)
      : 1000 * number("seconds", values.seconds, 1, 3600 * HOURS_MAX);
  const unknown = positionals.filter((word) => !STORES.some(({ name }) => name === word));
  if (unknown.length > 0) throw new Error(`there is no engine ${unknown.join(", ")}; choose from ${NAMES}`);
  const stores = STORES.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
  const seed =
    values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : number("seed", values.seed, 0, 2 ** 32 - 1);
  return { ...values, ms, seed, workers: number("workers", values.workers, 1, 32), stores };
}

function given(): NonNullable<ReturnType<typeof read>> {
  try {
    const words = read();
    if (words !== null) return words;
    console.log(USAGE);
    return process.exit(0);
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    return process.exit(2);
  }
}

const { ms, seed, workers, stores, out, json, broken } = given();
const duration = ms % 60_000 === 0 ? `--minutes ${ms / 60_000}` : `--seconds ${ms / 1000}`;
const replayOf = (store: string): string =>
  `npm run soak -- --seed ${seed} ${duration} --workers ${workers}${broken === undefined ? "" : ` --broken ${broken}`} ${store}`;

const servers = {
  redis: "Redis",
  quorum: "Redis",
  postgres: "PostgreSQL",
  mysql: "MariaDB",
  etcd: "etcd",
  zookeeper: "ZooKeeper",
} as const;
install(stores.flatMap(({ name }) => (name in servers ? [servers[name as keyof typeof servers]] : [])));

const interrupt = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // The second time nobody waits: processes end with this one, and servers by their guards.
    if (interrupt.signal.aborted) process.exit(130);
    console.error("\nending; once more to end at once");
    interrupt.abort();
  });
}

const library = broken === undefined ? undefined : brokenLibrary(broken);
const results: Result[] = [];
if (!json)
  console.log(
    `seed ${seed}; ${(ms / 60_000).toFixed(1)} minutes on each of ${stores.map(({ name }) => name).join(", ")}`,
  );
try {
  for (const store of stores) {
    if (interrupt.signal.aborted) break;
    const result = await soak(store);
    results.push(result);
    progress("");
    if (!json) tell(result);
  }
} finally {
  library?.remove();
}
if (json) console.log(JSON.stringify(results.map((result) => ({ ...result, replay: replayOf(result.store) }))));
else console.log(`\n${tableOf(results)}`);
const broke = results.some(({ violations }) => violations.length > 0);
process.exit(broke ? 1 : interrupt.signal.aborted ? 130 : 0);

function soak(store: Store): Promise<Result> {
  let saidAt = performance.now();
  return new Soak(store, {
    ms,
    seed,
    workers,
    out,
    library: library?.path ?? join(ROOT, "dist"),
    interrupted: interrupt.signal,
    progress(line) {
      progress(line);
      // Where nobody looks at it live, a line now and then.
      if (process.stderr.isTTY || json || performance.now() < saidAt + 15_000) return;
      saidAt = performance.now();
      console.log(line);
    },
  }).run();
}

function tell({ store, violations, saved }: Result): void {
  console.log(`${violations.length === 0 ? "ok   " : "WRONG"} ${store}`);
  for (const { rule, what } of violations.slice(0, 20)) console.log(`      ${rule}: ${what}`);
  if (violations.length > 20) console.log(`      and ${violations.length - 20} more`);
  if (violations.length === 0) return;
  if (saved.length > 0) console.log(`      history: ${saved.join(", ")}`);
  console.log(`      again: ${replayOf(store)}`);
}
