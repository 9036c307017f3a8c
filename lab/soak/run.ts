import { join } from "node:path";
import { install } from "../../test/servers/packages.js";
import { brokenLibrary } from "../broken.js";
import { progress } from "../lib/progress.js";
import { ROOT } from "../lib/results.js";
import type { Arguments } from "./arguments.js";
import { tableOf } from "./report.js";
import { type Result, Soak } from "./soak.js";
import { STORES } from "./stores.js";

const SERVERS = {
  redis: "Redis",
  quorum: "Redis",
  postgres: "PostgreSQL",
  mysql: "MariaDB",
  etcd: "etcd",
  zookeeper: "ZooKeeper",
} as const;
const SHOWN_MAX = 20;
/** Where nobody looks at it live, a line this often. */
const LINE_EVERY_MS = 15_000;

/** Every chosen store, one after the other. The code to end with: 1 when a rule was broken. */
export async function run(args: Arguments): Promise<number> {
  const { ms, seed, workers, names, out, json, broken } = args;
  const stores = STORES.filter(({ name }) => names.includes(name));
  install(names.flatMap((name) => (name in SERVERS ? [SERVERS[name as keyof typeof SERVERS]] : [])));
  const { signal: interrupted } = interruption();
  const library = broken === undefined ? undefined : brokenLibrary(broken);
  const results: Result[] = [];
  if (!json) console.log(`seed ${seed}; ${(ms / 60_000).toFixed(1)} minutes on each of ${names.join(", ")}`);
  try {
    for (const store of stores) {
      if (interrupted.aborted) break;
      const setting = { ms, seed, workers, out, interrupted, library: library?.path ?? join(ROOT, "dist") };
      const result = await new Soak(store, { ...setting, progress: json ? () => {} : tellNowAndThen() }).run();
      results.push(result);
      progress("");
      if (!json) tell(result, replayOf(args, store.name));
    }
  } finally {
    library?.remove();
  }
  if (json) console.log(JSON.stringify(results.map((one) => ({ ...one, replay: replayOf(args, one.store) }))));
  else console.log(`\n${tableOf(results)}`);
  if (results.some(({ violations }) => violations.length > 0)) return 1;
  return interrupted.aborted ? 130 : 0;
}

/** Ctrl-C, once: end and clean up. */
function interruption(): AbortController {
  const interrupt = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      // The second time nobody waits: processes end with this one, and servers by their guards.
      if (interrupt.signal.aborted) process.exit(130);
      console.error("\nending; once more to end at once");
      interrupt.abort();
    });
  }
  return interrupt;
}

function tellNowAndThen(): (line: string) => void {
  let saidAt = performance.now();
  return (line) => {
    progress(line);
    if (process.stderr.isTTY || performance.now() < saidAt + LINE_EVERY_MS) return;
    saidAt = performance.now();
    console.log(line);
  };
}

function replayOf({ ms, seed, workers, broken }: Arguments, store: string): string {
  const duration = ms % 60_000 === 0 ? `--minutes ${ms / 60_000}` : `--seconds ${ms / 1000}`;
  const way = broken === undefined ? "" : ` --broken ${broken}`;
  return `npm run soak -- --seed ${seed} ${duration} --workers ${workers}${way} ${store}`;
}

function tell({ store, violations, saved }: Result, replay: string): void {
  console.log(`${violations.length === 0 ? "ok   " : "WRONG"} ${store}`);
  for (const { rule, what } of violations.slice(0, SHOWN_MAX)) console.log(`      ${rule}: ${what}`);
  if (violations.length > SHOWN_MAX) console.log(`      and ${violations.length - SHOWN_MAX} more`);
  if (violations.length === 0) return;
  if (saved.length > 0) console.log(`      history: ${saved.join(", ")}`);
  console.log(`      again: ${replay}`);
}
