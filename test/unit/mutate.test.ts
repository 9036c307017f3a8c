import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Redis } from "ioredis";
import { describe, expect, onTestFinished, test } from "vitest";
import { startRedis } from "../servers/redis.js";

type Edit = { readonly operator: string; readonly at: number; readonly end: number; readonly to: string };
type Mutant = Edit & { readonly id: string; readonly file: string; readonly line: number };
type Tool = {
  readonly luaMutants: (text: string) => Iterable<Edit>;
  readonly sqlMutants: (text: string, options?: object) => Iterable<Edit>;
  readonly newestDefinitions: (
    files: readonly { file: string; text: string }[],
  ) => { file: string; from: number; to: number }[];
  readonly typescriptMutants: (text: string, options?: object) => Iterable<Edit>;
  readonly named: (file: string, text: string, edits: Iterable<Edit>) => Mutant[];
  readonly applied: (text: string, edit: Edit) => string;
  readonly diffOf: (text: string, mutant: Mutant) => string;
  readonly sampled: <One>(list: readonly One[], count: number, seed: number) => One[];
  readonly problemsOf: (root: string, entries: readonly { id: string; reason: string }[]) => string[];
  readonly readList: (root: string) => { id: string; reason: string }[];
  readonly readNamed: (root: string) => Named[];
  readonly staleOf: (root: string, entries: readonly Named[]) => Named[];
  readonly ownMutants: (root: string, files: readonly string[]) => Mutant[];
  readonly globbed: (pattern: string) => (file: string) => boolean;
  readonly probed: (text: string, mutants: readonly (Edit & { number: number })[]) => string;
  readonly recorder: (note: (one: Noted) => void, evaluated: Set<number>) => Recorder;
  readonly reachOf: (folder: string, notes: string) => { reached: Map<number, Reaching>; took: Durations };
  readonly judgesOf: (files: Reaching | undefined, took: Durations) => string[] | null;
};
type Noted = { readonly test: string; readonly number?: number; readonly ms?: number };
type Recorder = {
  readonly reached: (number: number, isOfModule: boolean) => void;
  readonly begun: (test: string) => void;
  readonly ended: (test: string, ms: number) => void;
};
type Named = { readonly file: string; readonly from: string; readonly test: string; readonly title?: string };
/** By test file: the names of tests, and how long each took. */
type Reaching = Map<string, Set<string>>;
type Durations = Map<string, Map<string, number>>;

const ROOT = resolve(import.meta.dirname, "../..");
const LUA = "src/engines/redis/lua";

/** The parts that need no package beyond the library's own. */
async function tool(): Promise<Tool> {
  const parts = [
    "lua",
    "sql",
    "typescript",
    "mutants",
    "equivalents",
    "own",
    "files",
    "reach",
    "recorder",
    "named",
  ].map((name) => import(pathToFileURL(join(ROOT, `tools/mutate/lib/${name}.mjs`)).href) as Promise<Partial<Tool>>);
  return Object.assign({}, ...(await Promise.all(parts))) as Tool;
}
const mutate = await tool();

/** What becomes of a text: each mutant as "operator: text". */
const made = (text: string, edits: Iterable<Edit>): string[] =>
  mutate.named("file", text, edits).map((edit) => `${edit.operator}: ${mutate.applied(text, edit).trim()}`);

describe("of Lua the mutator makes", () => {
  const lua = (text: string): string[] => made(text, mutate.luaMutants(text));

  test("a condition decided, its operands dropped, its comparison turned, its bound shifted", () => {
    expect(lua("if a and b < 5 then c() else d() end").toSorted()).toEqual(
      [
        "decide condition: if true then c() else d() end",
        "decide condition: if false then c() else d() end",
        "drop condition: if b < 5 then c() else d() end",
        "drop condition: if a then c() else d() end",
        "turn comparison: if a and b <= 5 then c() else d() end",
        "shift bound: if a and b < 6 then c() else d() end",
        "shift bound: if a and b < 4 then c() else d() end",
        "drop statement: if a and b < 5 then  else d() end",
        "drop statement: if a and b < 5 then c() else  end",
      ].toSorted(),
    );
  });

  test("each operand of a chain dropped once, and OR's with all that AND binds", () => {
    expect(lua("return a and b and c or d")).toEqual([
      "drop condition: return b and c or d",
      "drop condition: return d",
      "drop condition: return a and c or d",
      "drop condition: return a and b or d",
      "drop condition: return a and b and c",
    ]);
  });

  test("a statement dropped that ends where the next begins, though nothing stands between them", () => {
    expect(lua("x.y = f(1000)\nlocal z = 1000\ng(z)")).toEqual([
      "drop statement: local z = 1000\ng(z)",
      "drop statement: x.y = f(1000)\nlocal z = 1000",
    ]);
  });

  test("neighbouring arguments swapped, never a command of redis.call or a literal with a variable", () => {
    const swaps = lua("local r = redis.call('SET', key, value, 'NX')").filter((one) => one.startsWith("swap"));
    expect(swaps).toEqual(["swap arguments: local r = redis.call('SET', value, key, 'NX')"]);
  });

  test("nothing of texts and comments", () => {
    expect(lua("-- if a < 1 then b() end\nlocal s = 'x < 1 and y' --[[ z() ]] local t = \"not 1\"")).toEqual([]);
  });

  test("scripts that Redis still compiles", { timeout: 120_000 }, async () => {
    const { port, running } = await startRedis();
    onTestFinished(() => running.stop());
    const client = new Redis(port);
    onTestFinished(() => client.disconnect());
    const files = readdirSync(join(ROOT, LUA)).filter((file) => file.endsWith(".lua"));
    let count = 0;
    for (const file of [...files, "shared/name.lua"]) {
      const text = readFileSync(join(ROOT, LUA, file), "utf8");
      const loads = mutate.named(file, text, mutate.luaMutants(text)).map((mutant) => {
        count += 1;
        return client
          .script("LOAD", mutate.applied(text, mutant))
          .catch((error) => Promise.reject(new Error(`${mutant.id}: ${error}`)));
      });
      await Promise.all(loads);
    }
    expect(count).toBeGreaterThan(500);
  });
});

describe("of SQL the mutator makes", () => {
  const sql = (text: string, options?: object): string[] => made(text, mutate.sqlMutants(text, options));

  test("conditions dropped and comparisons turned, assignments left as such and dropped one at a time", () => {
    expect(sql("UPDATE t SET a = 1000, b = c WHERE d = e AND f IS NULL").toSorted()).toEqual(
      [
        "drop statement: UPDATE t SET b = c WHERE d = e AND f IS NULL",
        "drop statement: UPDATE t SET a = 1000 WHERE d = e AND f IS NULL",
        "turn comparison: UPDATE t SET a = 1000, b = c WHERE d <> e AND f IS NULL",
        "turn comparison: UPDATE t SET a = 1000, b = c WHERE d = e AND f IS NOT NULL",
        "drop condition: UPDATE t SET a = 1000, b = c WHERE f IS NULL",
        "drop condition: UPDATE t SET a = 1000, b = c WHERE d = e",
      ].toSorted(),
    );
  });

  test("the only condition of a statement dropped", () => {
    expect(sql("DELETE FROM t WHERE a > b")).toEqual([
      "drop condition: DELETE FROM t WHERE TRUE",
      "turn comparison: DELETE FROM t WHERE a >= b",
    ]);
  });

  test("branches of a function decided, and statements replaced by one that does nothing", () => {
    expect(sql("BEGIN IF a THEN n.b := 1000; END IF; PERFORM f(x); END", { empty: "NULL;" })).toEqual([
      "decide condition: BEGIN IF TRUE THEN n.b := 1000; END IF; PERFORM f(x); END",
      "decide condition: BEGIN IF FALSE THEN n.b := 1000; END IF; PERFORM f(x); END",
      "drop statement: BEGIN IF a THEN NULL; END IF; PERFORM f(x); END",
      "drop statement: BEGIN IF a THEN n.b := 1000; END IF; NULL; END",
    ]);
  });

  test("a parameter never lost where the statement's header lists it", () => {
    expect(sql("SELECT a FROM t WHERE b AND c > :now", { keeps: true })).toContain(
      "drop condition: SELECT a FROM t WHERE b AND (c > :now OR TRUE)",
    );
  });

  test("nothing of texts, comments, types and transactions", () => {
    const text = "-- a = 1\nDECLARE v VARBINARY(64) DEFAULT 'a = 1 AND b'; COMMIT AND NO CHAIN; /* c < 1 */";
    expect(sql(text)).toEqual([]);
  });

  test("only of the newest definition of each function", () => {
    const old = "CREATE FUNCTION holdfast.f() AS $$\nBEGIN RETURN 1; END $$;\n";
    const both = `${old}CREATE FUNCTION holdfast.g() AS $$\nBEGIN RETURN 2; END $$;\n`;
    const newer = "CREATE OR REPLACE FUNCTION holdfast.f() AS $$\nBEGIN RETURN 3; END $$;\n";
    const files = [
      { file: "1", text: both },
      { file: "2", text: newer },
    ];
    const texts = mutate.newestDefinitions(files).map(({ file, from, to }) => {
      const text = files.find((one) => one.file === file)?.text ?? "";
      return `${file}: ${/\d/.exec(text.slice(from, to))?.[0]}`;
    });
    expect(texts.toSorted()).toEqual(["1: 2", "2: 3"]);
  });
});

describe("of TypeScript the mutator makes", () => {
  const typescript = (text: string, options?: object): string[] => made(text, mutate.typescriptMutants(text, options));

  test("the same five kinds, found in the syntax tree", () => {
    expect(typescript("if (a && b < 5) f(x, y); else g();").toSorted()).toEqual(
      [
        "decide condition: if (true) f(x, y); else g();",
        "decide condition: if (false) f(x, y); else g();",
        "drop condition: if (a) f(x, y); else g();",
        "drop condition: if (b < 5) f(x, y); else g();",
        "turn comparison: if (a && b <= 5) f(x, y); else g();",
        "shift bound: if (a && b < 6) f(x, y); else g();",
        "shift bound: if (a && b < 4) f(x, y); else g();",
        "swap arguments: if (a && b < 5) f(y, x); else g();",
        "drop statement: if (a && b < 5) ; else g();",
        "drop statement: if (a && b < 5) f(x, y); else ;",
      ].toSorted(),
    );
  });

  test("mutants of statements in its texts, with what is put into them left alone", () => {
    const text = ["const s = `UPDATE t SET a = 0 WHERE b = ", "{x < 1} AND c`;"].join("$");
    const kept = ["{x < 1}"].map((one) => `$${one}`).join("");
    expect(typescript(text, { sql: true })).toContain(
      `drop condition: const s = \`UPDATE t SET a = 0 WHERE b = ${kept}\`;`,
    );
    expect(typescript(text, { sql: true }).some((one) => one.includes("x <= 1} AND c"))).toBe(true);
  });

  test("nothing of types, texts, comments and the words of errors", () => {
    const text = 'type A = 1 | 2; // a < 1\nconst s = "a < 1"; function f(): void { throw new Error(`x ${1 + 1}`); }';
    expect(typescript(text)).toEqual([]);
  });
});

describe("a mutant", () => {
  const text = "a = 1\nif x < 1 then y() end\nz()\nif x < 1 then y() end\n";

  test("keeps its id when lines come and go elsewhere, and equal lines have different ones", () => {
    const ids = mutate.named("f.lua", text, mutate.luaMutants(text)).map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    const moved = `-- more\n\n${text}q()\n`;
    expect(mutate.named("f.lua", moved, mutate.luaMutants(moved)).map(({ id }) => id)).toEqual(
      expect.arrayContaining(ids),
    );
  });

  test("is shown as a diff that patch(1) would take", () => {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-diff-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    for (const mutant of mutate.named("f.lua", text, mutate.luaMutants(text))) {
      writeFileSync(join(folder, "f.lua"), text);
      execFileSync("git", ["apply", "--unidiff-zero", "-"], { cwd: folder, input: `${mutate.diffOf(text, mutant)}\n` });
      expect(readFileSync(join(folder, "f.lua"), "utf8")).toBe(mutate.applied(text, mutant));
    }
  });

  test("is in the sample that its seed draws, and the same seed draws the same", () => {
    const list = Array.from({ length: 100 }, (_, n) => n);
    expect(mutate.sampled(list, 10, 7)).toEqual(mutate.sampled(list, 10, 7));
    expect(mutate.sampled(list, 10, 7)).not.toEqual(mutate.sampled(list, 10, 8));
    expect(mutate.sampled(list, 10, 7)).toEqual(mutate.sampled(list, 10, 7).toSorted((a, b) => a - b));
  });
});

describe("which tests reach a mutant", () => {
  const source = [
    "export const late = (n = 1 + 1) => n > 5;",
    "export class Box { static most = 4; size = 2; get(n) { if (n > 3) return this.size; else { n += 7; } return n; } }",
  ].join("\n");

  test("is found by probes that stand where the mutant is, and change nothing", async () => {
    const mutants = mutate
      .named("file.ts", source, mutate.typescriptMutants(source))
      .map((one, number) => ({ ...one, number }));
    const text = mutate.probed(source, mutants);
    const probes = globalThis as { holdfastReached?: (number: number, isOfModule: boolean) => void };
    onTestFinished(() => void delete probes.holdfastReached);
    const reached = (run: () => unknown): string[] => {
      const lines = new Set<string>();
      probes.holdfastReached = (number, isOfModule) =>
        lines.add(`${mutants[number]?.operator}${isOfModule ? " of the module" : ""}`);
      run();
      return [...lines].toSorted();
    };
    type Made = { late: (n?: number) => boolean; Box: new () => { size: number; get(n: number): number } };
    const evaluated = new Set<boolean>();
    probes.holdfastReached = (_number, isOfModule) => evaluated.add(isOfModule);
    const made = (await import(`data:text/javascript,${encodeURIComponent(text)}`)) as Made;
    expect([...evaluated], "the bound of the static field").toEqual([true]);
    expect(reached(() => expect(made.late(9)).toBe(true))).toEqual(["shift bound", "turn comparison"]);
    let box = { size: 0, get: (n: number) => n };
    expect(reached(() => (box = new made.Box()))).toEqual(["shift bound"]);
    expect(reached(() => expect(box.get(4)).toBe(2))).not.toContain("drop statement");
    expect(reached(() => expect(box.get(1)).toBe(8))).toContain("drop statement");
  });

  test("is noted once for each: a test that is under way, all of a file in between, all of each file that shares a module", () => {
    const evaluated = new Set<number>();
    const noted: string[] = [];
    const noteOf =
      (file: string) =>
      ({ number, test, ms }: Noted): unknown =>
        noted.push(ms === undefined ? `${file}: ${number} by ${test}` : `${file}: ${test} took ${ms}`);
    const first = mutate.recorder(noteOf("a"), evaluated);
    first.reached(1, false);
    first.begun("one");
    first.begun("two");
    first.reached(2, false);
    first.reached(2, false);
    first.reached(3, true);
    first.ended("one", 5);
    first.reached(4, false);
    const second = mutate.recorder(noteOf("b"), evaluated);
    second.begun("three");
    second.reached(3, true);
    expect(noted).toEqual([
      "a: 1 by ",
      "a: 2 by one",
      "a: 2 by two",
      "a: 3 by ",
      "a: one took 5",
      "a: 4 by two",
      "b: 3 by ",
    ]);
  });

  test("decides what judges it: some tests of a file, all of them, or none", () => {
    const notes = [
      { file: "/copy/a.test.ts", number: 0, test: "suite one (1)" },
      { file: "/copy/a.test.ts", test: "suite one (1)", ms: 50 },
      { file: "/copy/a.test.ts", test: "suite two", ms: 70 },
      { file: "/copy/b.test.ts", number: 0, test: "" },
      { file: "/copy/b.test.ts", test: "three", ms: 30 },
    ];
    const { reached, took } = mutate.reachOf("/copy", notes.map((note) => JSON.stringify(note)).join("\n"));
    expect(mutate.judgesOf(reached.get(0), took)?.slice(0, 4)).toEqual([
      "b.test.ts",
      "a.test.ts",
      "-t",
      "^(?:three|suite one \\(1\\))$",
    ]);
    expect(mutate.judgesOf(reached.get(1), took)).toBe(null);
  });
});

describe("the list of accepted equivalents", () => {
  test("names mutants that there are, each with its reason", () => {
    expect(mutate.problemsOf(ROOT, mutate.readList(ROOT))).toEqual([]);
  });

  test("is refused where a line has changed, a reason is missing, or an entry stands twice", () => {
    const root = mkdtempSync(join(tmpdir(), "holdfast-list-"));
    onTestFinished(() => rmSync(root, { recursive: true }));
    const file = "src/engines/redis/lua/a.lua";
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), "if x < 1 then y() end\n");
    const [own] = mutate.ownMutants(root, [file]);
    const id = own?.id ?? "";
    const reason = "nobody can tell";
    const stryker = id.replace(/:[a-z-]+:/, ":EqualityOperator:");
    expect(
      mutate.problemsOf(root, [
        { id, reason },
        { id: stryker, reason },
      ]),
    ).toEqual([]);
    expect(mutate.problemsOf(root, [{ id, reason: "" }])).toHaveLength(1);
    expect(
      mutate.problemsOf(root, [
        { id, reason },
        { id, reason },
      ]),
    ).toHaveLength(1);
    writeFileSync(join(root, file), "if x < 2 then y() end\n");
    expect(
      mutate.problemsOf(root, [
        { id, reason },
        { id: stryker, reason },
      ]),
    ).toHaveLength(2);
  });
});

test("the list of named mistakes changes lines that there are, and names tests that there are", () => {
  const named = mutate.readNamed(ROOT);
  expect(mutate.staleOf(ROOT, named)).toEqual([]);
  const missing = named.filter(
    ({ test: file, title = "" }) => !readFileSync(join(ROOT, file), "utf8").includes(title.replaceAll('"', '\\"')),
  );
  expect(missing).toEqual([]);
});

test("files are chosen by patterns as in a shell", () => {
  const chosen = mutate.globbed("src/{core,sql}/**/*.ts");
  expect(["src/core/a.ts", "src/sql/b/c.ts", "src/fence/a.ts", "src/core/a.sql"].map(chosen)).toEqual([
    true,
    true,
    false,
    false,
  ]);
});
