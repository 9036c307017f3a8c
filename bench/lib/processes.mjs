// Contenders in processes of their own.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { median, percentile } from "./measure.mjs";

const PROGRAM = join(import.meta.dirname, "contender.mjs");
const children = new Set();
process.once("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});

/** @param {{ store: string, contestant: string, at: object, word: "hot" | "hold" | "wait" }} settings what `contender.mjs` is to do */
export function contender(settings) {
  const args = ["--expose-gc", PROGRAM, JSON.stringify(settings)];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
  children.add(child);
  child.once("exit", () => children.delete(child));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return {
    async next() {
      const { value, done } = await lines.next();
      if (done) throw new Error(`${settings.store}, ${settings.contestant}: the contender ended`);
      return JSON.parse(value);
    },
    go: () => child.stdin.write("go\n"),
    kill: () => child.kill("SIGKILL"),
  };
}

const HOT = { processes: 4, tasks: 4, forMs: 2000, warmMs: 500 };

/**
 * Several processes with several tasks each fight for one lock: how fast it goes round, how fairly, and at what price. As a
 * whole, and the first half (`cold`: the code was not run so yet) and the second (`warm`) apart.
 */
export async function hotRound(store, contestant, at, settings = {}, before = async () => {}) {
  const { processes, ...told } = { ...HOT, ...settings };
  const { forMs } = told;
  const name = `hot ${contestant} ${Math.random()}`;
  const fighters = Array.from({ length: processes }, () =>
    contender({ store, contestant, at, word: "hot", name, ...told }),
  );
  for (const fighter of fighters) await fighter.next();
  await before();
  const serverCpu = () => (at.pid === undefined ? Number.NaN : cpuUsOf(at.pid));
  const serverBefore = serverCpu();
  for (const fighter of fighters) fighter.go();
  await new Promise((resolve) => setTimeout(resolve, forMs / 2));
  const serverThen = serverCpu();
  const reports = await Promise.all(fighters.map((fighter) => fighter.next()));
  const serverAfter = serverCpu();
  const tasks = reports.flatMap((report) => report.tasks);
  const clientCpu = (half) => reports.map(({ cpuUs }) => cpuUs[half]).reduce((a, b) => a + b, 0);
  const half = forMs / 2;
  return {
    ...figuresOf(tasks, 0, forMs),
    cold: { ...figuresOf(tasks, 0, half), ...perHold(tasks, 0, half, clientCpu("cold"), serverThen - serverBefore) },
    warm: {
      ...figuresOf(tasks, half, forMs),
      ...perHold(tasks, half, forMs, clientCpu("warm"), serverAfter - serverThen),
    },
  };
}

/** @param {[number, number][][]} tasks of each its holds: when it was taken, and how long it was waited for */
function figuresOf(tasks, from, to) {
  const then = tasks.map((holds) => holds.filter(([at]) => at >= from && at < to));
  const counts = then.map((holds) => holds.length);
  const holds = counts.reduce((a, b) => a + b, 0);
  const waits = then.flat().map(([, waited]) => waited);
  return {
    holds,
    perSecond: (holds * 1000) / (to - from),
    jain: holds ** 2 / (counts.length * counts.reduce((a, b) => a + b ** 2, 0)),
    luckiest: (Math.max(...counts) * counts.length) / holds,
    unluckiest: (Math.min(...counts) * counts.length) / holds,
    p50: median(waits),
    p99: percentile(waits, 0.99),
    longest: waits.reduce((a, b) => Math.max(a, b), 0),
  };
}

function perHold(tasks, from, to, clientUs, serverUs) {
  const { holds } = figuresOf(tasks, from, to);
  return { clientUs: clientUs / holds, serverUs: serverUs / holds };
}

/** What a process has used of the processors so far; Linux counts in hundredths of a second. */
function cpuUsOf(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}
