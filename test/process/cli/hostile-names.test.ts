import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
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

/** In other settings a part of it is enough. */
const SHELLS: readonly [kind: "bash" | "zsh", what: string, setup: string][] = [
  ["bash", "as it comes", ""],
  ["bash", "with globs off, an IFS of its own and unset variables refused", "set -f; IFS=:; set -u"],
  ["bash", "with nullglob, failglob, nocasematch and extglob", "shopt -s nullglob failglob nocasematch extglob"],
  ["bash", "in POSIX mode, with another set of word breaks", "set -o posix; COMP_WORDBREAKS=${COMP_WORDBREAKS//:}"],
  ["zsh", "as it comes", ""],
  ["zsh", "with options that split and expand", "setopt sh_word_split glob_subst ksh_arrays null_glob"],
];

describe.each(SHELLS)("completion in %s, %s", (kind, _, setup) => {
  test("a name is data: it is inserted so that the line names it, and nothing in it runs", {
    timeout: 120_000,
  }, async () => {
    const { world, given } = await typing(kind, setup);
    await holdAll(world, [...NAMES.map(([name]) => name), "-x", "--", "--json"]);
    for (const [name, typed] of setup === "" ? [...NAMES, ...TYPED] : [...NAMES.slice(0, 6), ...TYPED.slice(3, 7)]) {
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

test("what would speak to the terminal is not offered", { timeout: 60_000 }, async () => {
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
