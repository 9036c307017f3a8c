import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import Database from "libsql";
import { describe, expect, test } from "vitest";
import { shellWord } from "../../../src/cli/printable.js";
import { programsOf } from "../../servers/packages.js";
import { until } from "../../servers/process.js";
import { installed, type Running, World } from "./rig.js";

/** A lock's name, and what somebody types of it before TAB. */
const NAMES: readonly [name: string, typed: string][] = [
  ["$(touch PWNED-1)", "\\$"],
  ["a$(touch PWNED-2)", "a"],
  ["b`touch PWNED-3`", "b"],
  ["c; touch PWNED-4; x", "c"],
  ["d' $(touch PWNED-5) '", "d"],
  ['e" $(touch PWNED-6) "', "e"],
  ["f\\$(touch PWNED-7)", "f"],
  ["g|touch PWNED-8", "g"],
  ["h&touch PWNED-9", "h"],
  ["i>PWNED-10", "i"],
  ["j <(touch PWNED-11)", "j"],
  ["k $((PWNED)) ${HOME} $HOME", "k"],
  ["l*?[a-z]", "l"],
  ["m{1,2}", "m"],
  ["n!!", "n"],
  ["~root", "\\~"],
  ["t=~root", "t"],
  ["#o", "\\#"],
  ["p  two spaces ", "p"],
  [" q leading", "\\ q"],
  ["räksmörgås 漢字 🔒", "r"],
  ["s:colon:and=at@x", "s"],
  ["u\\", "u"],
  ["v%s%n%(", "v"],
  ["w'quote\"both", "w"],
  ["y$'\\x24(touch PWNED-12)'", "y"],
];

/** Typed in part, in every way that a shell has of quoting. */
const TYPED: readonly [name: string, typed: string][] = [
  ["a$(touch PWNED-2)", "'a"],
  ["a$(touch PWNED-2)", "'a$(tou"],
  ["a$(touch PWNED-2)", "a\\$\\(t"],
  ["a$(touch PWNED-2)", "a'$('"],
  ["c; touch PWNED-4; x", '"c; t'],
  ["p  two spaces ", "p\\ \\ "],
  ["s:colon:and=at@x", "s:co"],
  ["s:colon:and=at@x", "s:colon:"],
  ["s:colon:and=at@x", "s:colon:and="],
];

/** A shell in a terminal of its own, in which each `holdfast show …` writes down the words that it was given. */
async function typing(kind: "bash" | "zsh", setup: string) {
  const { world, env } = installed();
  const program = kind === "bash" ? "exec bash --norc --noprofile -i" : `exec ${programsOf("Zsh").zsh} -f -i`;
  const shell: Running = world.startIn(["script", "-qec", program, "/dev/null"], {
    ...env,
    LC_ALL: "C.UTF-8",
    HISTFILE: "/dev/null",
  });
  const type = (text: string): void => void shell.process.stdin?.write(text);
  const init =
    kind === "zsh"
      ? "autoload -Uz compinit; compinit -u -d $PWD/dump; unsetopt prompt_sp"
      : "bind 'set bell-style none'";
  type(`PS1= ; n=0; ${init}\n`);
  type('eval "$(holdfast completion '.concat(kind, ')"\n'));
  type(
    'holdfast() { case $1 in completion | ls) command holdfast "$@" ;; *) n=$((n + 1)); printf "%s\\n" "$@" > got; mv got got-$n ;; esac; }\n',
  );
  type(`${setup}\necho ready > ready\n`);
  await world.says("ready");
  let count = 0;
  const given = async (line: string): Promise<string[]> => {
    count += 1;
    const file = `got-${count}`;
    type(`${line}\t`);
    type("\n");
    await until(`${JSON.stringify(line)} was run: ${JSON.stringify(shell.out.slice(-400))}`, () =>
      existsSync(world.path(file)),
    );
    return world.read(file).split("\n").slice(0, -1);
  };
  return { world, type, given };
}

async function holdAll(world: World, names: readonly string[]): Promise<void> {
  const locks = await world.locks();
  for (const name of names) await locks.mutex(name).acquire();
}

const pwned = (world: World): string[] => readdirSync(world.folder).filter((file) => file.startsWith("PWNED"));

const OLD = `compopt() { return 127; }
printf() { builtin printf "$@"; if [ "$1" = -v ]; then eval "$2=\\\${$2//\\\\\\\\~/'~'}"; fi; }`;

/** In other settings a part of it is enough. */
const SHELLS: readonly [kind: "bash" | "zsh", what: string, setup: string][] = [
  ["bash", "as it comes", ""],
  ["bash", "with globs off, an IFS of its own and unset variables refused", "set -f; IFS=:; set -u"],
  ["bash", "with nullglob, failglob, nocasematch and extglob", "shopt -s nullglob failglob nocasematch extglob"],
  ["bash", "in POSIX mode, with another set of word breaks", "set -o posix; COMP_WORDBREAKS=${COMP_WORDBREAKS//:}"],
  ["bash", "with what bash 3.2 does not do: quote ~, and ask readline for files", OLD],
  ["zsh", "as it comes", ""],
  ["zsh", "with options that split and expand", "setopt sh_word_split glob_subst ksh_arrays null_glob"],
];

describe.each(SHELLS)("completion in %s, %s", (kind, _, setup) => {
  test("a name is data: it is inserted so that the line names it, and nothing in it runs", {
    timeout: 480_000,
  }, async () => {
    const { world, given } = await typing(kind, setup);
    await holdAll(world, [...NAMES.map(([name]) => name), "-x", "--", "--json"]);
    for (const [name, typed] of setup === ""
      ? [...NAMES, ...TYPED]
      : [...NAMES.filter(([name]) => /PWNED-[1-6]\b|~/.test(name)), ...TYPED.slice(3, 7)]) {
      const words = await given(`holdfast show ${typed}`);
      expect(pwned(world)).toEqual([]);
      expect([typed, ...words]).toEqual([typed, "show", name]);
    }
    // Where a name is expected behind --, also one that looks like an option.
    expect(await given("holdfast show -- -x")).toEqual(["show", "--", "-x"]);
    expect(await given("holdfast show -- --j")).toEqual(["show", "--", "--json"]);
    // A file behind the command that is run.
    writeFileSync(world.path("zz$(touch PWNED-20) 'x'"), "");
    expect(await given("holdfast run a -- cat zz")).toEqual(["run", "a", "--", "cat", "zz$(touch PWNED-20) 'x'"]);
    expect(await given("holdfast run -- -x -- cat zz")).toEqual([
      "run",
      "--",
      "-x",
      "--",
      "cat",
      "zz$(touch PWNED-20) 'x'",
    ]);
    expect(pwned(world)).toEqual([]);
    // An option where options are meant.
    expect(await given("holdfast show --js")).toEqual(["show", "--json"]);
  });
});

test("what would speak to the terminal is not offered", { timeout: 240_000 }, async () => {
  const world = new World();
  await holdAll(world, [
    "good",
    "turned\u202earound",
    "marked\u200e",
    "\u{e0001}tag",
    "line\u2028two",
    "wide\u00a0space",
  ]);
  const { out } = await world.holdfast("completion", "names", "");
  expect(out).toBe("good\nwide\u00a0space\n");
  expect((await world.holdfast("completion", "names", "--", "go")).out).toBe("good\n");
  expect((await world.holdfast("completion", "names", "x")).out).toBe("");
});

describe("names that look like options", () => {
  const DASHED = ["-x", "--", "--json", "--help", "-"];

  test.each(DASHED)("%s is run, led by, listed, shown, busy and released", { timeout: 240_000 }, async (name) => {
    const world = new World();
    const ran = await world.holdfast(
      "run",
      "--no-wait",
      "--",
      name,
      "--",
      "sh",
      "-c",
      'echo "$HOLDFAST_NAME" "$@"',
      "sh",
      "--",
      "-x",
    );
    expect(ran).toMatchObject({ code: 0, out: `${name} -- -x\n`, err: "" });
    const line = await world.holdfast("run", "-c", 'echo "$HOLDFAST_NAME"', "--", name);
    expect(line).toMatchObject({ code: 0, out: `${name}\n`, err: "" });
    const elected = await world.holdfast("elect", "--", name, "--", "echo", "leads");
    expect(elected).toMatchObject({ code: 0, out: "leads\n", err: "" });
    const once = await world.holdfast("once", "--", name, "--", "echo", "once");
    expect(once).toMatchObject({ code: 0, out: "once\n", err: "" });
    await holdAll(world, [name]);
    const shown = await world.holdfast("show", "--json", "--", name);
    expect(JSON.parse(shown.out)).toMatchObject({ name, holders: [{ token: expect.any(Number) }] });
    expect((await world.holdfast("ls", "--", name)).out).toMatch(/mutex/);
    expect(await world.holdfast("run", "-n", "--", name, "--", "true")).toMatchObject({ code: 1 });
    const busy = await world.holdfast("hold", "-n", "--pid", String(process.pid), "--", name);
    expect(busy).toMatchObject({ code: 1, err: expect.stringContaining(`"${name}" is busy`) });
    const released = await world.holdfast("release", "--force", "--yes", "--json", "--", name);
    expect(JSON.parse(released.out)).toMatchObject({ name, released: [{ token: expect.any(Number) }] });
    expect((await world.holdfast("show", "--", name)).out).toBe(`"${name}" is free\n`);
  });

  test("what is missing is told with where it goes", async () => {
    const world = new World();
    const wrong: [string[], RegExp][] = [
      [["show", "-x"], /Unknown option '-x'; a name that begins with - goes behind --/],
      [["run", "-y", "--", "true"], /Unknown option '-y'; a name that begins with - goes between two --/],
      [["run", "--", "true"], /name of the lock is missing: before the --, or, if it begins with -, between two --/],
      [["run", "--", "-x", "--"], /command is missing/],
      [["show", "--", "-x", "-y"], /"-y" is too much/],
      [["show", "a", "--", "b"], /"b" is too much/],
      [["ls", "--", "a", "b"], /one prefix is enough/],
      [["doctor", "--", "a"], /it takes no name/],
      [["show", "--"], /name of the lock is missing/],
    ];
    const results = await Promise.all(wrong.map(([args]) => world.holdfast(...args)));
    expect(results.map(({ code }) => code)).toEqual(wrong.map(() => 64));
    results.forEach(({ err }, n) => expect(err).toMatch(wrong[n]?.[1] ?? /never/));
  });
});

describe("what reaches a terminal", () => {
  /** Somebody may write to the store without asking the library what a name or a label may hold. */
  const EVIL = "evil\u001b]0;title\u0007\u009b31m\u202e\u200f\u2028x\ny";

  test("names and labels of others cannot speak to it, in any format", async () => {
    const world = new World();
    const locks = await world.locks();
    await locks.mutex("plain").acquire({ label: "label" });
    const db = new Database(world.path("locks.db"));
    const tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all() as { name: string }[];
    let changed = 0;
    for (const { name: table } of tables) {
      for (const { name: column } of db.prepare(`PRAGMA table_info("${table}")`).all() as { name: string }[]) {
        const change = `UPDATE "${table}" SET "${column}" = replace("${column}", ?, ?) WHERE typeof("${column}") = 'text'`;
        changed += db.prepare(change).run('"label":"label"', `"label":${JSON.stringify(EVIL)}`).changes;
        changed += db.prepare(change).run("plain", EVIL).changes;
      }
    }
    db.close();
    expect(changed).toBeGreaterThan(0);
    const listed = await world.holdfast("ls");
    expect(listed.out).toContain("evil");
    const json = await world.holdfast("ls", "--json");
    expect((JSON.parse(json.out) as { name: string }).name).toBe(EVIL);
    for (const { out, err } of [
      listed,
      json,
      await world.holdfast("doctor"),
      await world.holdfast("completion", "names"),
    ]) {
      expect(`${out}${err}`).not.toMatch(/[\p{Cf}\p{Zl}\p{Zp}]|(?!\n)\p{Cc}/u);
    }
    // One line for the head, one for the name.
    expect(listed.out.trimEnd().split("\n")).toHaveLength(2);
    expect((await world.holdfast("completion", "names")).out).toBe("");
  });

  test("a command line that doctor advises is safe to copy", async () => {
    expect(shellWord("backup")).toBe("backup");
    for (const name of ["$(touch x)", "a b", "it's", "~", "=ls", "*", "", "`x`", "a!b"]) {
      const { stdout } = spawnSync("bash", ["-c", `printf %s ${shellWord(name)}`], { encoding: "utf8" });
      expect(stdout).toBe(name);
    }
  });
});
