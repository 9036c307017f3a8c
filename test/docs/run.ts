import { execFile } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { type Block, lowered, ROOT } from "./blocks.js";

const run = promisify(execFile);
const TIMEOUT_MS = 120_000;

/**
 * Run a block as a reader would, with a state folder of its own: JavaScript on this Node, importing the built package by
 * its name; shell commands in an empty folder, with the package's own commands in the path.
 */
export async function runBlock(block: Block): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-docs-"));
  const env = { ...process.env, HOLDFAST_URL: undefined, XDG_STATE_HOME: join(folder, "state"), NO_COLOR: "1" };
  const options = { timeout: TIMEOUT_MS, killSignal: "SIGKILL", env } as const;
  try {
    const { stdout, stderr } =
      block.language === "sh"
        ? await run("bash", ["-euo", "pipefail", "-c", block.code], {
            ...options,
            cwd: mkdtempSync(join(folder, "work-")),
            env: { ...env, PATH: `${commands(folder)}${delimiter}${process.env.PATH}` },
          })
        : await run(process.execPath, ["--input-type=module", "-e", lowered(block)], { ...options, cwd: ROOT });
    if (stderr !== "" && block.language !== "sh") throw new Error(`it complains: ${stderr}`);
    return stdout;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A folder with the commands that the package brings. */
function commands(folder: string): string {
  const { bin = {} } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { bin?: Record<string, string> };
  const path = join(folder, "bin");
  mkdirSync(path);
  for (const [name, file] of Object.entries(bin)) {
    chmodSync(join(ROOT, file), 0o755);
    symlinkSync(join(ROOT, file), join(path, name));
  }
  return path;
}
