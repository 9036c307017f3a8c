import { constants } from "node:fs";
import { link, lstat, mkdir, open, readdir, readlink, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { checkCount, checkKnown, shown } from "../core/checks.js";
import { SystemChance } from "../core/clock.js";
import { InvalidOptionError, StaleTokenError } from "../core/errors.js";
import { checkRaise, checkToken, type FenceOptions, type FenceToken, type Shown } from "./token.js";

export interface FencedFileOptions extends Omit<FenceOptions, "strict"> {
  /** Of the file, when it is new; a file that is there keeps its own. */
  readonly mode?: number;
}

const chance = new SystemChance();

/** A number as this file writes it. */
const NUMBER = /^[1-9]\d{0,15}$/;
/** Links that are followed to a file that is not there yet; as many as Linux follows. */
const LINKS_MAX = 40;

/**
 * Replaces a file as a whole, unless it has seen a newer floor; readers see the old content or the new, never a part. For all
 * processes of one machine, without any lock: beside the file stands the folder `<file>.fence`, with
 *
 * - `floor-<number>`: an empty marker file. Tokens below the highest are refused.
 * - `set-<token>`: the live tokens of a grant with an exact set; the newest counts.
 * - `write-<token>-<chance>`: what a writer is about to rename to the file; `draft-…`: what is about to become a set.
 *
 * A name that begins like a marker or a set and is none (`floor-20~`), or a set that cannot be read, is refused, and nothing is
 * written until it is gone: it may have been the highest. Everything else in the folder is left alone.
 *
 * A writer puts down its content, then its markers, and only then reads the folder. Of two writers that overlap, either the older one sees the
 * marker of the newer and gives up, or the newer one sees the older one's content and removes it, before it
 * renames its own: the older one's rename then finds nothing, or came before. Content is removed before markers are, so a
 * writer that misses a marker which is removed while it reads has nothing left to rename.
 *
 * A crash leaves the old content, or the new one, and perhaps a marker or a content that a later writer removes.
 */
export async function fencedWriteFile(
  path: string,
  data: string | Uint8Array,
  given: FenceToken,
  { mode, ...options }: FencedFileOptions = {},
): Promise<void> {
  const token = checkShown(given, options);
  if (typeof data !== "string" && !(data instanceof Uint8Array)) {
    throw new InvalidOptionError("data", shown(data), "a string or bytes");
  }
  if (mode !== undefined) checkCount("mode", mode, 0, 0o7777);
  const { file, folder } = await placeOf(path);
  const own = join(folder, `write-${token.token}-${chance.id()}`);
  try {
    await put(own, data, (await modeOf(file)) ?? mode);
    await writeMarkers(path, folder, token);
    await checkMarkers(path, folder, token);
    await rename(own, file).catch((error: unknown) => {
      // A newer writer took it away.
      throw isCode(error, "ENOENT") ? new StaleTokenError(path, token.token) : error;
    });
  } catch (error) {
    await rm(own, { force: true });
    throw error;
  }
  await syncFolder(dirname(file));
}

/** Shuts out everybody older than this token, at once. */
export async function raiseFile(
  path: string,
  token: number,
  options: Omit<FencedFileOptions, "mode"> = {},
): Promise<void> {
  const raised = checkShown(checkRaise(token, options), options);
  const { folder } = await placeOf(path);
  await writeMarkers(path, folder, raised);
  await checkMarkers(path, folder, raised).catch((error: unknown) => {
    // It is higher already.
    if (!(error instanceof StaleTokenError)) throw error;
  });
}

function checkShown(given: FenceToken, options: object): Shown {
  checkKnown(options, ["aheadMs", "clock"]);
  return checkToken(given, options);
}

/** The file behind links, so that all its names share one fence, and the folder of the fence. */
async function placeOf(path: string): Promise<{ readonly file: string; readonly folder: string }> {
  if (typeof path !== "string" || path === "") throw new InvalidOptionError("path", shown(path), "a path");
  const file = await behindLinks(resolve(path));
  const folder = `${file}.fence`;
  if ((await mkdir(folder, { recursive: true })) !== undefined) await syncFolder(dirname(file));
  if (!(await lstat(folder)).isDirectory()) throw notAFence(`${folder} is not a folder`);
  return { file, folder };
}

/** Also behind a link to a file that is not there yet. */
async function behindLinks(path: string, links = 0): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if (!isCode(error, "ENOENT") || links > LINKS_MAX) throw error;
  }
  const own = join(await realpath(dirname(path)), basename(path));
  const target = await readlink(own).catch((error: unknown) => {
    // There is nothing, or by now a file.
    if (isCode(error, "ENOENT") || isCode(error, "EINVAL")) return null;
    throw error;
  });
  return target === null ? own : behindLinks(resolve(dirname(own), target), links + 1);
}

function notAFence(problem: string): InvalidOptionError {
  return new InvalidOptionError("path", problem, "a file whose .fence folder is for its fence alone");
}

async function modeOf(file: string): Promise<number | undefined> {
  try {
    return (await stat(file)).mode & 0o7777;
  } catch (error) {
    if (isCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** A new file with this content, on the disk. */
async function put(path: string, data: string | Uint8Array, mode?: number): Promise<void> {
  const handle = await open(path, "wx");
  try {
    // Not when it is opened: that is cut by the process's mask.
    if (mode !== undefined) await handle.chmod(mode);
    await handle.writeFile(data);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Writes the markers of a token to the disk. A set is written once: what a grant has shown first counts. */
async function writeMarkers(path: string, folder: string, { token, floor, live }: Shown): Promise<void> {
  await putMarker(join(folder, `floor-${floor}`));
  if (live !== undefined) {
    const draft = join(folder, `draft-${token}-${chance.id()}`);
    await put(draft, JSON.stringify(live));
    try {
      await link(draft, join(folder, `set-${token}`));
    } catch (error) {
      // A newer writer took it away.
      if (isCode(error, "ENOENT")) throw new StaleTokenError(path, token);
      if (!isCode(error, "EEXIST")) throw error;
    } finally {
      await rm(draft, { force: true });
    }
  }
  await syncFolder(folder);
}

/** Its name is all that counts: whatever has it is the marker. */
async function putMarker(path: string): Promise<void> {
  try {
    await (await open(path, "wx")).close();
  } catch (error) {
    if (!isCode(error, "EEXIST")) throw error;
  }
}

/** Throws for a newer marker; otherwise removes what is older, contents first. */
async function checkMarkers(path: string, folder: string, { token, floor, live }: Shown): Promise<void> {
  const names = await readdir(folder);
  const [fence, newest] = [highest(folder, names, "floor"), highest(folder, names, "set")];
  if (token < fence) throw new StaleTokenError(path, token, fence);
  if (live !== undefined) await checkAmongLive(path, folder, token, newest);
  const isOver = (one: number): boolean => one < floor || (live !== undefined && one < token && !live.includes(one));
  const remove = (kind: string, ends: (number: number) => boolean): Promise<unknown> => {
    const ended = names.filter((name) => {
      const [first, number = ""] = name.split("-");
      return first === kind && NUMBER.test(number) && ends(Number(number));
    });
    return Promise.all(ended.map((name) => rm(join(folder, name), { force: true })));
  };
  await Promise.all([remove("write", isOver), remove("draft", isOver)]);
  await remove("floor", (one) => one < floor);
  await remove("set", (one) => one < (live === undefined ? floor : token));
}

/** The highest number of this kind; 0 when there is none. */
function highest(folder: string, names: readonly string[], kind: "floor" | "set"): number {
  const numbers = names
    .filter((name) => name.startsWith(`${kind}-`))
    .map((name) => {
      const text = name.slice(kind.length + 1);
      if (!NUMBER.test(text) || !Number.isSafeInteger(Number(text))) {
        throw notAFence(`${join(folder, name)} is no marker of a fence; remove it if it belongs to nobody`);
      }
      return Number(text);
    });
  return Math.max(0, ...numbers);
}

async function checkAmongLive(path: string, folder: string, token: number, newest: number): Promise<void> {
  if (token >= newest) return;
  const live = await readSet(join(folder, `set-${newest}`));
  // It has made way for a newer one in this moment.
  if (live === null) return checkAmongLive(path, folder, token, highest(folder, await readdir(folder), "set"));
  if (!live.includes(token)) throw new StaleTokenError(path, token);
}

/** Null when it is not there any more. */
async function readSet(path: string): Promise<readonly unknown[] | null> {
  try {
    // A FIFO would keep us waiting, a link lead to something else.
    const carefully = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
    const handle = await open(path, constants.O_RDONLY | carefully);
    try {
      const set: unknown = (await handle.stat()).isFile() ? JSON.parse(await handle.readFile("utf8")) : null;
      if (Array.isArray(set) && set.every(Number.isSafeInteger)) return set;
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (isCode(error, "ENOENT")) return null;
    if (!(error instanceof SyntaxError) && !isCode(error, "ELOOP")) throw error;
  }
  throw notAFence(`${path} is no set of live tokens; remove it if no writer is under way`);
}

/** What a folder lists, on the disk. Windows cannot, and does by itself. */
async function syncFolder(folder: string): Promise<void> {
  if (process.platform === "win32") return;
  const handle = await open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function isCode(error: unknown, code: string): boolean {
  return (error as NodeJS.ErrnoException).code === code;
}
