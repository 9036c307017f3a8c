import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { redisPython, startRedis } from "../../test/servers/redis.js";
import { curatorJava, javaClasspath, kazooPython, startZooKeeper } from "../../test/servers/zookeeper.js";

type Pair = {
  readonly layout: string;
  readonly program: string;
  readonly key?: string;
  /** Redis unless said otherwise. */
  readonly store?: "zookeeper";
};

/** Which of our layouts shares its locks with whom, and under which key. */
export const PAIRS: readonly Pair[] = [
  { layout: "redisson", program: "node-redisson 1.0.4" },
  { layout: "redisson", program: "RLock by layout" },
  { layout: "redisson-fenced", program: "RFencedLock by layout" },
  { layout: "plain", program: "redlock 4" },
  { layout: "plain", program: "redlock 5" },
  { layout: "plain", program: "redis-semaphore 5", key: "mutex:counter" },
  { layout: "plain", program: "verrou 0.5" },
  { layout: "plain", program: "redis-py 4" },
  { layout: "plain", program: "Spring RedisLockRegistry by layout", key: "registry:counter" },
  { layout: "plain", program: "Laravel Cache::lock by layout", key: "laravel_cache_:counter" },
  { store: "zookeeper", layout: "curator", program: "Curator 5.4 InterProcessMutex" },
  { store: "zookeeper", layout: "curator, writer", program: "Curator 5.4 InterProcessReadWriteLock" },
  { store: "zookeeper", layout: "curator, election", program: "Curator 5.4 LeaderSelector" },
  { store: "zookeeper", layout: "curator-latch, election", program: "Curator 5.4 LeaderLatch" },
  { store: "zookeeper", layout: "curator", program: "Kazoo 2.8 Lock with extra_lock_patterns" },
  { store: "zookeeper", layout: "kazoo", program: "Kazoo 2.8 Lock" },
  { store: "zookeeper", layout: "kazoo, writer", program: "Kazoo 2.8 WriteLock" },
  { store: "zookeeper", layout: "kazoo, election", program: "Kazoo 2.8 Election" },
];

export type PairResult = {
  readonly layout: string;
  readonly program: string;
  readonly ours: number;
  readonly theirs: number;
  readonly counted: number;
  readonly wrong: number;
  readonly exact: boolean;
};

const HERE = import.meta.dirname;
const SERVERS = join(HERE, "../../test/servers");
const PAUSE_MS = 30;
/** The time ends it before. */
const ROUNDS_MAX = 2 ** 31 - 1;

type Tally = { readonly count: number; readonly wrong: number };
type Command = readonly [program: string, args: readonly string[]];
/** Where, on what and for how long one of them counts. */
type Contest = { readonly port: number; readonly key: string; readonly file: string; readonly ms: number };

async function contend([program, args]: Command, ms: number): Promise<Tally> {
  const { stdout } = await promisify(execFile)(program, args, { timeout: ms + 120_000 });
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as Tally;
}

function node(who: string, { port, key, file, ms }: Contest): Command {
  const contender = ["--import", join(HERE, "../lib/typescript.mjs"), join(HERE, "contender.ts")];
  return [process.execPath, [...contender, who, String(port), key, file, String(ms)]];
}

const curator =
  (kind: string) =>
  ({ port, key, file, ms }: Contest): Command => {
    const java = ["-cp", javaClasspath(), "-Dslf4j.internal.verbosity=ERROR", join(SERVERS, "java/Contender.java")];
    const limits = [ROUNDS_MAX, ms, PAUSE_MS].map(String);
    return [curatorJava(), [...java, `127.0.0.1:${port}`, `/locks/${key}`, file, kind, ...limits]];
  };

const kazoo =
  (recipe: string, patterns: readonly string[] = []) =>
  ({ port, key, file, ms }: Contest): Command => {
    const limits = [ROUNDS_MAX, ms, PAUSE_MS];
    const args = [`127.0.0.1:${port}`, `/locks/${key}`, file, recipe, patterns, limits];
    return [kazooPython(), [join(SERVERS, "kazoo-contender.py"), JSON.stringify(args)]];
  };

/** Those that are no programs of Node.js. */
const OTHERS: Readonly<Record<string, (contest: Contest) => Command>> = {
  "redis-py 4": ({ port, key, file, ms }) => [
    redisPython(),
    [join(HERE, "redis-py.py"), String(port), key, file, String(ms)],
  ],
  "Curator 5.4 InterProcessMutex": curator("mutex"),
  "Curator 5.4 InterProcessReadWriteLock": curator("write"),
  "Curator 5.4 LeaderSelector": curator("selector"),
  "Curator 5.4 LeaderLatch": curator("latch"),
  "Kazoo 2.8 Lock with extra_lock_patterns": kazoo("Lock", ["-lock-"]),
  "Kazoo 2.8 Lock": kazoo("Lock"),
  "Kazoo 2.8 WriteLock": kazoo("WriteLock"),
  "Kazoo 2.8 Election": kazoo("Election"),
};

/** A server of its own, one program on each side. Exact: the sum is what both counted, and nobody saw another inside. */
async function runPair({ layout, program, key = "counter", store }: Pair, ms: number): Promise<PairResult> {
  const { port, running } = store === "zookeeper" ? await startZooKeeper() : await startRedis();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-share-"));
  const file = join(folder, "counter");
  writeFileSync(file, "0");
  const contest = { port, key, file, ms };
  try {
    const other = OTHERS[program]?.(contest) ?? node(program, contest);
    const [ours, theirs] = await Promise.all([contend(node(layout, contest), ms), contend(other, ms)]);
    const counted = Number(readFileSync(file, "utf8"));
    const wrong = ours.wrong + theirs.wrong;
    const exact = wrong === 0 && counted === ours.count + theirs.count;
    return { layout, program, ours: ours.count, theirs: theirs.count, counted, wrong, exact };
  } finally {
    await running.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** `atOnce` pairs beside each other, each on a server of its own. */
export async function runPairs(
  ms: number,
  atOnce: number,
  ended: (result: PairResult) => void,
  pairs = PAIRS,
): Promise<PairResult[]> {
  const left = [...pairs];
  const results: PairResult[] = [];
  const worker = async (): Promise<void> => {
    for (let pair = left.shift(); pair !== undefined; pair = left.shift()) {
      const result = await runPair(pair, ms);
      results.push(result);
      ended(result);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return results;
}
