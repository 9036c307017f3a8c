// --quick: mutants of Lua and SQL judged by the comparison in virtual time alone, all of them in one process on one server.
// What passes may still be killed by the other tests, so the score is a lower bound.
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { applied } from "./mutants.mjs";
import { compileScripts, scratchCopy, whileRunning } from "./own.mjs";

const JUDGE = join(import.meta.dirname, "../judges/quick.mjs");
const LIMIT_MS = 600_000;
const WITHOUT_A_MUTANT = "0";

/** One process that judges; `ask` tells what it says of the mutant that is in place, or "limit". */
class Judge {
  constructor(folder, engine) {
    const stdio = ["pipe", "pipe", "ignore"];
    this.child = spawn(process.execPath, [JUDGE, folder, engine], { cwd: folder, detached: true, stdio });
    this.end = () => {
      try {
        process.kill(-Number(this.child.pid), "SIGKILL");
      } catch {
        // It has ended already.
      }
    };
    this.forget = whileRunning(this.end);
    this.child.on("close", () => this.forget());
    this.answers = createInterface({ input: this.child.stdout });
  }

  ask(number, file, limitMs) {
    return new Promise((resolve) => {
      const told = (answer) => {
        clearTimeout(timer);
        this.answers.removeListener("line", onLine);
        this.child.removeListener("close", onClose);
        resolve(answer);
      };
      const onLine = (line) => line.startsWith(`${number} `) && told(line.slice(number.length + 1));
      const onClose = () => told("ended");
      const timer = setTimeout(() => told("limit"), limitMs);
      this.answers.on("line", onLine);
      this.child.on("close", onClose);
      this.child.stdin.write(`${number} ${file}\n`);
    });
  }
}

export async function runQuick(root, engine, mutants, { jobs, patience, say, tell }) {
  const left = [...mutants.entries()];
  const results = [];
  const work = async () => {
    const folder = scratchCopy(root);
    let judge = new Judge(folder, engine);
    const startedAt = performance.now();
    const first = await judge.ask(WITHOUT_A_MUTANT, "", LIMIT_MS * patience);
    if (first !== "passed") throw new Error(`the comparison fails without a mutant: ${first}`);
    const took = performance.now() - startedAt;
    say(`Without a mutant: passed in ${(took / 1000).toFixed(1)} s`);
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const [at, mutant] = next;
      const source = readFileSync(join(root, mutant.file), "utf8");
      writeFileSync(join(folder, mutant.file), applied(source, mutant));
      const refused = compileScripts(folder, mutant.file);
      const answer =
        refused === ""
          ? await judge.ask(String(at + 1), mutant.file, (took * 4 + 60_000) * patience)
          : "does not compile";
      writeFileSync(join(folder, mutant.file), source);
      results[at] = { ...mutant, ...outcomeOf(answer) };
      tell(results[at]);
      if (answer !== "limit" && answer !== "ended") continue;
      judge.end();
      judge = new Judge(folder, engine);
      await judge.ask(WITHOUT_A_MUTANT, "", LIMIT_MS * patience);
    }
    judge.end();
  };
  await Promise.all(Array.from({ length: Math.min(jobs, mutants.length) }, work));
  return results;
}

function outcomeOf(answer) {
  if (answer === "does not compile" || answer.startsWith("killed syntax")) return { status: "does not compile" };
  if (answer === "passed") return { status: "survived" };
  if (answer.startsWith("killed ")) return { status: "killed", by: answer.slice("killed ".length) };
  return { status: "timed out", by: answer };
}
