import { writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { programsOf } from "../../servers/packages.js";
import { installed, World } from "./rig.js";

const CASES: [words: string[], offered: string[]][] = [
  [["re"], ["release"]],
  [["d"], ["doctor"]],
  [["run", "--no"], ["--no-wait"]],
  [["run", "--kill"], ["--kill-after"]],
  [
    ["show", "back"],
    ["backup-db", "backup-web"],
  ],
  [["run", "-w", ""], []],
  [["release", "--", "dep"], ["deploy"]],
  [["completion", "z"], ["zsh"]],
];

test("bash completes commands, options, and names in use", async () => {
  const { world, env } = installed();
  const locks = await world.locks();
  for (const name of ["backup-web", "backup-db", "deploy"]) await locks.mutex(name).acquire();
  // Where zsh offers the options that are left, bash offers nothing.
  const nothing: typeof CASES = [
    [["show", "backup-db", ""], []],
    [["doctor", ""], []],
  ];
  for (const [words, offered] of [...CASES, ...nothing]) {
    const script = `eval "$(holdfast completion bash)"; COMP_WORDS=(holdfast "$@"); COMP_CWORD=$#; COMP_LINE="holdfast $*"; COMP_POINT=\${#COMP_LINE}
      complete -p holdfast > /dev/null || exit 3; _holdfast; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { out, err, code } = await world.startIn(["bash", "-c", script, "bash", ...words], env).ended;
    expect({ words, code, err, out: out.trim().split("\n").filter(Boolean).toSorted() }).toEqual({
      words,
      code: 0,
      err: "",
      out: offered,
    });
  }
});

test("zsh completes commands, options, and names in use", { timeout: 240_000 }, async () => {
  const { world, env } = installed();
  const locks = await world.locks();
  for (const name of ["backup-web", "backup-db", "deploy"]) await locks.mutex(name).acquire();
  const { zsh = "" } = programsOf("Zsh");
  writeFileSync(
    world.path("complete.zsh"),
    // A real line editor in a terminal of its own; what it would offer is written down instead of shown.
    `zmodload zsh/zpty
zpty -b shell ${zsh} -f -i
zpty -w shell "PS1= ; autoload -Uz compinit; compinit -u -d $PWD/dump; eval \\"\\$(holdfast completion zsh)\\""
zpty -w shell 'compadd() { local -a got; builtin compadd -O got "$@"; [[ -n $got ]] && print -l -- $got >> $PWD/offered; builtin compadd "$@" }'
zpty -w shell 'print ready > ready'
while [[ ! -s ready ]]; do sleep 0.05; done
zpty -n -w shell "holdfast $1"$'\\t'
sleep 0.3; tries=0
while [[ ! -e done && $tries -lt 60 ]]; do
  sleep 0.1; tries=$((tries + 1)); [[ -s offered && $tries -gt 5 ]] && break
done
zpty -d shell
`,
  );
  for (const [words, offered] of CASES) {
    writeFileSync(world.path("offered"), "");
    writeFileSync(world.path("ready"), "");
    const { err } = await world.startIn([zsh, "-f", "complete.zsh", words.join(" ")], env).ended;
    const got = [...new Set(world.read("offered").trim().split("\n").filter(Boolean))].toSorted();
    expect({ words, err, got }).toEqual({ words, err: "", got: offered });
  }
});

test("another shell is refused", async () => {
  const world = new World();
  expect(await world.holdfast("completion", "fish")).toMatchObject({
    code: 64,
    err: expect.stringContaining("bash or zsh"),
  });
});
