// Our own mutants, each in a scratch copy of the tree: the files of whoever calls are never touched.
import { execFileSync, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { globbed } from "./files.mjs";
import { luaMutants } from "./lua.mjs";
import { applied, named } from "./mutants.mjs";
import { judgesOf, prepare, reachOf, recording } from "./reach.mjs";
import { newestDefinitions, sqlMutants } from "./sql.mjs";
import { transpiled, typescriptMutants } from "./typescript.mjs";

const COPIED = /^(?:src|test|scripts|lab)\/|^[^/]+\.(?:json|ts)$/;
const LIMIT_MS = 600_000;
const MOST_OUTPUT = 200_000;

/** All mutants of these files. */
export function ownMutants(root, files) {
  const texts = files.map((file) => ({ file, text: readFileSync(join(root, file), "utf8") }));
  const migrations = texts.filter(({ file }) => file.includes("/migrations/"));
  const functions = newestDefinitions(migrations);
  return texts.flatMap(({ file, text }) => {
    if (file.endsWith(".lua")) return named(file, text, luaMutants(text));
    if (file.endsWith(".ts")) return named(file, text, typescriptMutants(text, { sql: true }));
    const empty = file.includes("/mysql/") ? "DO 0;" : "NULL;";
    if (!file.includes("/migrations/")) return named(file, text, sqlMutants(text, { keeps: true }));
    const own = functions.filter((one) => one.file === file);
    return named(
      file,
      text,
      own.flatMap(({ from, to }) => [...sqlMutants(text, { from, to, empty })]),
    );
  });
}

export const build = (root) => void execFileSync("npm", ["run", "-s", "build"], { cwd: root, stdio: "inherit" });

/** A copy of what the tests need, with the packages and what is built linked in. `built`: a mutant is made in what is built, too. */
export function scratchCopy(root, built = false) {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-mutate-"));
  scratch.add(folder);
  const listed = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 2 ** 26,
  });
  for (const file of listed.split("\n")) {
    if (!COPIED.test(file) || !existsSync(join(root, file))) continue;
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    cpSync(join(root, file), join(folder, file));
  }
  if (built) cpSync(join(root, "dist"), join(folder, "dist"), { recursive: true });
  for (const linked of ["node_modules", "dist", "tools"]) {
    if (existsSync(join(root, linked)) && !existsSync(join(folder, linked)))
      symlinkSync(join(root, linked), join(folder, linked));
  }
  // The compilers compare the header of a script with its code. A mutant may break that; it is the tests' turn to notice.
  loosen(join(folder, "scripts/compile-lua.mjs"), 'if (wrong.length > 0) throw new Error(wrong.join("\\n"));');
  loosen(
    join(folder, "scripts/compile-sql.mjs"),
    'for (const name of names) if (!used.has(name)) fail(path, `the header has "${name}", the code has not`);',
  );
  // Whoever reads a failure wants the fewest commands that show it; here one failure is enough.
  loosen(join(folder, "src/testing/compare.ts"), "options.shrink === false", "true");
  return folder;
}

function loosen(path, check, instead = "") {
  const text = readFileSync(path, "utf8");
  if (!text.includes(check)) throw new Error(`${path} no longer contains: ${check}`);
  writeFileSync(path, text.replace(check, instead));
}

/** Writes this text there, and what is made of it: scripts, and what is built if there is a copy of that. What a compiler refuses it with, or "". */
export function put(folder, file, text, built) {
  writeFileSync(join(folder, file), text);
  const refused = compileScripts(folder, file);
  if (!built || refused !== "") return refused;
  const source = file.endsWith(".ts") ? file : file.replace(/\/(?:lua|sql|migrations)\/.*$/, "/scripts.generated.ts");
  writeFileSync(
    join(folder, source.replace(/^src(.*)\.ts$/, "dist$1.js")),
    transpiled(readFileSync(join(folder, source), "utf8")),
  );
  return "";
}

export function compileScripts(folder, file) {
  if (!/\.(?:lua|sql)$/.test(file)) return "";
  const script = file.endsWith(".lua") ? "scripts/compile-lua.mjs" : "scripts/compile-sql.mjs";
  try {
    execFileSync(process.execPath, [script], { cwd: folder, stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" });
    return "";
  } catch (error) {
    return error.stderr ?? String(error);
  }
}

/** One `vitest run`: its exit code, or "limit" when it took too long, and what it said. */
export function judged(folder, args, limitMs, env = {}) {
  return new Promise((resolve) => {
    const vitest = join(folder, "node_modules/vitest/vitest.mjs");
    const child = spawn(process.execPath, [vitest, "run", ...args, "--bail=1", "--maxWorkers=1"], {
      cwd: folder,
      // A group of its own, so that all of it can be ended; its servers end by themselves when it does.
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...env, NO_COLOR: "1", FORCE_COLOR: "0" },
    });
    let output = "";
    let late = false;
    const note = (data) => void (output = (output + data).slice(-MOST_OUTPUT));
    child.stdout.on("data", note);
    child.stderr.on("data", note);
    const end = () => {
      try {
        process.kill(-Number(child.pid), "SIGKILL");
      } catch {
        // It has ended already.
      }
    };
    const timer = setTimeout(() => ((late = true), end()), limitMs);
    running.add(end);
    child.on("close", (code) => {
      clearTimeout(timer);
      running.delete(end);
      resolve({ outcome: late ? "limit" : code, output });
    });
  });
}

const running = new Set();
const scratch = new Set();
/** `end` is called when the run is interrupted, until what is returned here is. */
export function whileRunning(end) {
  running.add(end);
  return () => running.delete(end);
}

/** Ends what is under way: whoever interrupts a run leaves nothing behind. */
export function endAll() {
  for (const end of running) end();
  for (const folder of scratch) rmSync(folder, { recursive: true, force: true });
}

/** Of the tests of each run those that exist, and match if there is something to match. */
const existing = (root, runs, by) =>
  runs
    .map((args) =>
      args.filter(
        (arg, at) =>
          !arg.endsWith(".test.ts") ||
          args[at - 1] === "-t" ||
          (existsSync(join(root, arg)) && (by === undefined || globbed(by)(arg))),
      ),
    )
    .filter((args) => args.some((arg) => arg.endsWith(".test.ts")));

const SYNTAX =
  /syntax error at or near|error in your SQL syntax|Undefined CONDITION|near ".*": syntax error|Error compiling script/;

/**
 * Runs these mutants and tells each outcome as it comes. First the tests without any, to know that they pass, how long they
 * take (a run that takes three times as long is over), and which of them reach which mutant of TypeScript.
 */
export async function runOwn(
  root,
  { runs, typescript = [], built = false },
  mutants,
  { jobs, patience, compiles, say, tell, by, baseline = true },
) {
  const forAll = existing(root, runs, by);
  const isOfTypescript = mutants.some(({ file }) => file.endsWith(".ts"));
  const lists = [...forAll, ...(isOfTypescript ? existing(root, typescript, by) : [])];
  if (lists.length === 0) throw new Error(`no test of this target matches ${by}`);
  const folders = [];
  try {
    if (built) build(root);
    folders.push(scratchCopy(root, built));
    const probes = baseline ? recording(root, folders[0], mutants) : undefined;
    const limits = lists.map(() => LIMIT_MS * patience);
    const unjudged = probes === undefined ? [] : [...lists.entries()];
    const passes = async () => {
      for (let next = unjudged.shift(); next !== undefined; next = unjudged.shift()) {
        const [n, args] = next;
        const all = [...args, ...probes.args];
        const startedAt = performance.now();
        let { outcome, output } = await judged(folders[0], all, LIMIT_MS * patience, probes.env);
        if (outcome !== 0) ({ outcome, output } = await judged(folders[0], all, LIMIT_MS * patience, probes.env));
        if (outcome !== 0)
          throw new Error(`these tests fail without a mutant: ${args.join(" ")}\n${output.slice(-4000)}`);
        const took = performance.now() - startedAt;
        say(`Without a mutant: ${args.join(" ")} passed in ${(took / 1000).toFixed(1)} s`);
        limits[n] = (took * 3 + 30_000) * patience;
      }
    };
    await Promise.all(Array.from({ length: jobs }, passes));
    const reach = probes === undefined ? undefined : reachOf(folders[0], probes.read());
    probes?.end();
    while (folders.length < Math.min(jobs, mutants.length)) folders.push(scratchCopy(root, built));
    for (const folder of folders) prepare(folder);
    const left = [...mutants.entries()];
    const results = [];
    const work = async (folder) => {
      for (let next = left.shift(); next !== undefined; next = left.shift()) {
        const [at, mutant] = next;
        results[at] = { ...mutant, ...(await one(folder, mutant)) };
        tell(results[at]);
      }
    };
    await Promise.all(folders.map(work));
    return results;

    /** All runs in their order; of TypeScript one run of what reaches the mutant. */
    function runsFor({ id, file }) {
      const whole = lists.map((args, n) => ({ args, limit: limits[n] }));
      if (!file.endsWith(".ts")) return whole.slice(0, forAll.length);
      // What a test's own processes pass no probe tells.
      if (reach === undefined || built) return whole;
      const args = judgesOf(reach.reached.get(probes.numberOf(id)), reach.took);
      const limit = limits.reduce((sum, one) => sum + one, 0);
      return args === null ? [] : [{ args, limit }];
    }

    async function one(folder, mutant) {
      const source = readFileSync(join(root, mutant.file), "utf8");
      const text = applied(source, mutant);
      if (mutant.file.endsWith(".ts") && !compiles(mutant.file, text)) return { status: "does not compile" };
      try {
        const refused = put(folder, mutant.file, text, built);
        if (refused !== "") return { status: "does not compile", output: refused };
        let all = "";
        for (const { args, limit } of runsFor(mutant)) {
          let { outcome, output } = await judged(folder, args, limit);
          for (let tries = 1; tries < STARTS_MAX && NOT_STARTED.test(output); tries += 1)
            ({ outcome, output } = await judged(folder, args, limit));
          all += `$ vitest run ${args.join(" ")}\n${output}\n`;
          if (outcome === 0) continue;
          if (outcome === "limit") return { status: "timed out", by: args.join(" "), output: all };
          if (SYNTAX.test(output)) return { status: "does not compile", output: all };
          if (!JUDGED.test(output) && !NOT_STARTED.test(output))
            throw new Error(`no test judged:\n${all.slice(-4000)}`);
          const why = failureOf(output);
          const status = OUT_OF_TIME.test(why) || NOT_STARTED.test(output) ? "timed out" : "killed";
          return { status, by: failedTest(output) ?? args.join(" "), why, output: all };
        }
        return all === "" ? { status: "survived", note: "no test reaches it" } : { status: "survived", output: all };
      } finally {
        put(folder, mutant.file, source, built);
      }
    }
  } finally {
    // Servers that are ending may still write there.
    for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 });
  }
}

/** What a test says that waited in vain: on a busy machine that may be so without a mutant. */
const OUT_OF_TIME = /timed out in \d+ ?ms|^Error: not within \d+ ms|no answer within \d+ ms/;

/** Nothing was judged: on a busy machine a test process, or a server, may take longer to start than is waited for it. */
const NOT_STARTED =
  /\[vitest-pool(?:-runner)?\]: (?:Failed to start|Timeout waiting for worker)|^Error: \S+ did not start:/m;
const STARTS_MAX = 4;
/** A test or a file of tests that failed, or an error that nobody caught. Anything else is a mistake of ours, and kills nothing. */
const JUDGED = /^\s*FAIL\s|Unhandled (?:Rejection|Error)/m;

export const failureOf = (output) => /(?:^\s*FAIL\s+.+\n)+(.+)$/m.exec(output)?.[1] ?? "";
const failedTest = (output) => /^\s*FAIL\s+(.+)$/m.exec(output)?.[1];
