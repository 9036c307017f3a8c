import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { programsOf } from "../../servers/packages.js";
import { installed } from "./rig.js";

const PAGE = "docs/reference/cli.md";
const text = readFileSync(resolve(import.meta.dirname, "../../..", PAGE), "utf8");

/** Every block for a shell, with the line that it starts at. */
const BLOCKS = [...text.matchAll(/^```(sh|zsh)\n(.*?)^```/gms)].map((block): [string, string, string] => [
  `${PAGE}:${text.slice(0, block.index).split("\n").length}`,
  block[1] ?? "",
  block[2] ?? "",
]);

/** What the examples call: there, quick, and content. */
const PROGRAMS = ["backup.sh", "edit.sh", "report.sh", "serve", "bin/ffmpeg", "bin/make", "bin/jq"];

async function shell(program: string, code: string): Promise<void> {
  const { world, env } = installed();
  for (const name of PROGRAMS) writeFileSync(world.path(name), "#!/bin/sh\nexit 0\n", { mode: 0o755 });
  writeFileSync(world.path("config.json"), "{}\n");
  writeFileSync(world.path("scheduler.js"), "");
  const locks = await world.locks();
  await locks.mutex("stuck").acquire();
  const { code: exit, err } = await world.startIn([program, "-e", "-c", code], env).ended;
  expect({ exit, err }).toEqual({ exit: 0, err: "" });
}

test("the page has them", () => {
  expect(BLOCKS.length).toBeGreaterThan(10);
});

test.each(BLOCKS)("the commands at %s run", { timeout: 240_000 }, async (_place, name, code) => {
  await shell(name === "zsh" ? (programsOf("Zsh").zsh ?? "") : "bash", code);
});

test("the examples of every --help run", { timeout: 480_000 }, async () => {
  const { world } = installed();
  const { out } = await world.holdfast("--help");
  for (const [, command = ""] of out.matchAll(/^ {2}holdfast ([a-z]+) .* {2}/gm)) {
    const help = (await world.holdfast(command, "--help")).out;
    const examples = help
      .slice(help.indexOf("Examples:\n") + 10)
      .trim()
      .split("\n");
    expect(examples.length).toBeGreaterThan(0);
    for (const example of examples) {
      const zsh = example.includes("completion zsh");
      const program = zsh ? (programsOf("Zsh").zsh ?? "") : "bash";
      await shell(program, zsh ? `autoload -Uz compinit && compinit -u; ${example}` : example);
    }
  }
});
