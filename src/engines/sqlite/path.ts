// Beside the usual files: a store that is a file has a place, which is checked before SQLite opens it.
import { chmodSync, closeSync, linkSync, mkdirSync, openSync, type Stats, statSync, unlinkSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, isAbsolute, join, resolve } from "node:path";
import type { Chance } from "../../core/clock.js";
import { EngineRefusedError } from "../../core/errors.js";
import type { Machine } from "./machine.js";

/** The lock file of a user when no URL is given, by the rules of XDG. */
export function defaultPath(environment: NodeJS.ProcessEnv = process.env): string {
  const { XDG_STATE_HOME, LOCALAPPDATA } = environment;
  // A relative path there is invalid and to be ignored.
  if (XDG_STATE_HOME !== undefined && isAbsolute(XDG_STATE_HOME)) return join(XDG_STATE_HOME, "holdfast", "locks.db");
  if (process.platform === "win32" && LOCALAPPDATA) return join(LOCALAPPDATA, "holdfast", "locks.db");
  return join(homedir(), ".local", "state", "holdfast", "locks.db");
}

/** The folder of the default file, for its owner only; and the file, before SQLite makes it readable for others. */
export function makePrivate(path: string, chance: Chance): void {
  const folder = dirname(path);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    // Made by somebody else with wider rights.
    if ((statSync(folder).mode & 0o077) !== 0) chmodSync(folder, 0o700);
    makeEmpty(path, 0o600, chance);
  } catch (error) {
    const cause = new Error(`${path}: ${(error as Error).message}`, { cause: error });
    const advice = "The locks of this user go there; set HOLDFAST_URL, or XDG_STATE_HOME, to put them elsewhere.";
    throw new EngineRefusedError("sqlite", advice, cause);
  }
}

/**
 * An empty file with these rights, unless there is one. It gets its name only when it is closed again: closing a file
 * gives up every lock that this process has on it, also SQLite's.
 */
function makeEmpty(path: string, mode: number, chance: Chance): void {
  if (statSync(path, { throwIfNoEntry: false }) !== undefined) return;
  const draft = `${path}.${chance.id()}`;
  closeSync(openSync(draft, "wx", mode));
  try {
    linkSync(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    unlinkSync(draft);
  }
}

/** The absolute path, once it is sure that its folder exists and is local, and that SQLite would not open something else. */
export function checkPath(path: string, machine: Machine): string {
  const full = resolve(path);
  const folder = dirname(full);
  if (!at(folder)?.isDirectory()) {
    const cause = new Error(`${full}: there is no folder ${folder}`);
    throw new EngineRefusedError("sqlite", "Make the folder, or choose another path for the locks.", cause);
  }
  const there = at(full);
  if (there?.isDirectory()) {
    const cause = new Error(`${full} is a folder`);
    throw new EngineRefusedError("sqlite", "Name a file in it.", cause);
  }
  if (there !== undefined && !there.isFile()) {
    const cause = new Error(`${full} is not a regular file`);
    throw new EngineRefusedError("sqlite", "It was left as it is. Choose another path for the locks.", cause);
  }
  const network = machine.networkFileSystem(folder);
  if (network !== null) {
    const cause = new Error(`${folder} is on a network file system (${network})`);
    const advice = "Its locks do not hold between machines. Use a local folder, or a store with a server.";
    throw new EngineRefusedError("sqlite", advice, cause);
  }
  return full;
}

/** What is there, behind links; undefined when nothing is. */
function at(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    // A loop of links, a folder that may not be entered.
    throw new EngineRefusedError("sqlite", "Choose another path for the locks, or check its rights.", error);
  }
}
