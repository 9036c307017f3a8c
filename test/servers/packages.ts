import { execFileSync, spawnSync } from "node:child_process";
import { accessSync, closeSync, constants, existsSync, openSync, readSync, writeSync } from "node:fs";
import { delimiter, join } from "node:path";

/** One server that tests need: how its programs are called and which Debian packages bring them. */
export type Server = {
  readonly name: string;
  readonly programs: readonly string[];
  readonly packages: readonly string[];
  /** Where to look before PATH. */
  readonly folders?: readonly string[];
  /** What must also be so, for a library that is no program: a command that succeeds. */
  readonly check?: readonly string[];
};

/** The path of each program of a server; what is missing is installed, or the run fails and says what to do. */
export function programsOf(server: Server): Readonly<Record<string, string>> {
  if (missing(server).length > 0) install(server);
  const still = missing(server);
  if (still.length > 0) throw new Error(`${server.name}: ${still.join(", ")} not found after installing`);
  return Object.fromEntries(server.programs.map((program) => [program, find(server, program) ?? ""]));
}

function find(server: Server, program: string): string | undefined {
  const folders = [...(server.folders ?? []), ...(process.env.PATH ?? "").split(delimiter), "/usr/sbin"];
  return folders.map((folder) => join(folder, program)).find(isProgram);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function missing(server: Server): string[] {
  const lacking = server.programs.filter((program) => find(server, program) === undefined);
  if (lacking.length > 0 || server.check === undefined) return lacking;
  const [program = "", ...args] = server.check;
  return spawnSync(program, args).status === 0 ? [] : [server.check.join(" ")];
}

/** Never skipped in silence: without the server the test fails and prints the line to run. */
function install(server: Server): void {
  const list = server.packages.join(" ");
  const line = `apt-get update && apt-get install -y --no-install-recommends ${list}`;
  const wanted = `these tests need ${server.name} (${missing(server).join(", ")})`;
  if (!isProgram("/usr/bin/apt-get")) throw new Error(`${wanted}; install it with your system's package manager`);
  if (process.getuid?.() !== 0) throw new Error(`${wanted}; run: sudo sh -c '${line}'`);
  console.log(`${wanted}; installing the Debian packages ${list}`);
  if (!agreed(`Install ${list}? [Y/n] `)) throw new Error(`${wanted}; run: ${line}`);
  const guard = keepDaemonsFromStarting();
  try {
    // Two test files may want to install at the same time: the second waits for the first.
    const options = ["-o", "DPkg::Lock::Timeout=300", "-q"];
    const quiet = {
      stdio: ["ignore", "ignore", "inherit"],
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    };
    execFileSync("apt-get", [...options, "update"], quiet as never);
    execFileSync(
      "apt-get",
      [...options, "install", "-y", "--no-install-recommends", ...server.packages],
      quiet as never,
    );
  } finally {
    guard();
  }
}

/** On a terminal somebody can be asked; elsewhere the list was printed and that is that. */
function agreed(question: string): boolean {
  if (process.env.CI) return true;
  let terminal: number;
  try {
    terminal = openSync("/dev/tty", "r+");
  } catch {
    return true;
  }
  try {
    writeSync(terminal, question);
    const answer = Buffer.alloc(64);
    const length = readSync(terminal, answer);
    return /^(y|yes)?$/i.test(answer.toString("utf8", 0, length).trim());
  } finally {
    closeSync(terminal);
  }
}

const POLICY = "/usr/sbin/policy-rc.d";

/** Debian starts a server when it is installed, on the port that others expect. Ours have ports of their own. */
function keepDaemonsFromStarting(): () => void {
  if (existsSync(POLICY)) return () => {};
  spawnSync("sh", ["-c", `printf '#!/bin/sh\\nexit 101\\n' > ${POLICY} && chmod +x ${POLICY}`]);
  return () => void spawnSync("rm", ["-f", POLICY]);
}
