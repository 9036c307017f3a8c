// Contenders in processes of their own.
import { spawn } from "node:child_process";
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

/** Several processes with several tasks each fight for one lock: how fast it goes round, and how fairly. */
export async function hotRound(store, contestant, at, settings = {}, before = async () => {}) {
  const { processes, ...told } = { ...HOT, ...settings };
  const name = `hot ${contestant} ${Math.random()}`;
  const fighters = Array.from({ length: processes }, () =>
    contender({ store, contestant, at, word: "hot", name, ...told }),
  );
  for (const fighter of fighters) await fighter.next();
  await before();
  for (const fighter of fighters) fighter.go();
  const tasks = (await Promise.all(fighters.map((fighter) => fighter.next()))).flat();
  const counts = tasks.map((waits) => waits.length);
  const holds = counts.reduce((a, b) => a + b, 0);
  const waits = tasks.flat();
  return {
    holds,
    perSecond: (holds * 1000) / told.forMs,
    jain: holds ** 2 / (counts.length * counts.reduce((a, b) => a + b ** 2, 0)),
    luckiest: (Math.max(...counts) * counts.length) / holds,
    unluckiest: (Math.min(...counts) * counts.length) / holds,
    p50: median(waits),
    p99: percentile(waits, 0.99),
  };
}
