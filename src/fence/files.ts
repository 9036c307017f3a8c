import { link, mkdir, open, readdir, readFile, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { SystemChance } from "../core/clock.js";
import { InvalidOptionError, StaleTokenError } from "../core/errors.js";
import { checkCount, checkKnown, shown } from "../core/options.js";
import { checkRaise, checkToken, type FenceOptions, type FenceToken, type Shown } from "./token.js";

export interface FencedFileOptions extends Omit<FenceOptions, "strict"> {
  /** Of the file, when it is new; a file that is there keeps its own. */
  readonly mode?: number;
}

const chance = new SystemChance();

/**
 * Replaces a file as a whole, unless it has seen a newer floor; readers see the old content or the new, never a part. For all
 * processes of one machine, without any lock: beside the file stands the folder `<file>.fence`, with
 *
 * - `floor-<number>`: an empty mark. Tokens below the highest are refused.
 * - `set-<token>`: the live tokens of a grant with an exact set; the newest counts.
 * - `write-<token>-<chance>`: what a writer is about to rename to the file; `draft-…`: what is about to become a set.
 *
 * A writer puts down its content, then its marks, and only then looks. Of two writers that overlap, either the older one sees the
 * mark of the newer and gives up, or the newer one sees the older one's content and removes it, before it
 * renames its own: the older one's rename then finds nothing, or came before. Content is removed before marks are, so
 * whoever misses a mark that goes while it looks has nothing left to rename.
 *
 * A crash leaves the old content, or the new one, and perhaps a mark or a content that a later writer removes.
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
    await mark(path, folder, token);
    await look(path, folder, token);
    await rename(own, file).catch((error: unknown) => {
      // A newer writer took it away.
      throw isCode(error, "ENOENT") ? new StaleTokenError(path, token.token) : error;
    });
  } catch (error) {
    await rm(own, { force: true });
    throw error;
  }
  await settle(dirname(file));
}

/** Shuts out everybody older than this token, at once. */
export async function raiseFile(
  path: string,
  token: number,
  options: Omit<FencedFileOptions, "mode"> = {},
): Promise<void> {
  const raised = checkShown(checkRaise(token, options), options);
  const { folder } = await placeOf(path);
  await mark(path, folder, raised);
  await look(path, folder, raised).catch((error: unknown) => {
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
  const file = await realpath(path).catch(async (error: unknown) => {
    if (!isCode(error, "ENOENT")) throw error;
    return join(await realpath(dirname(resolve(path))), basename(path));
  });
  const folder = `${file}.fence`;
  if ((await mkdir(folder, { recursive: true })) !== undefined) await settle(dirname(file));
  return { file, folder };
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

/** The marks of a token, on the disk. A set is put down once: what a grant has shown first counts. */
async function mark(path: string, folder: string, { token, floor, live }: Shown): Promise<void> {
  await (await open(join(folder, `floor-${floor}`), "a")).close();
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
  await settle(folder);
}

/** Gives up for a newer mark; otherwise clears away what is older, contents first. */
async function look(path: string, folder: string, { token, floor, live }: Shown): Promise<void> {
  const names = await readdir(folder);
  const numbers = (kind: string): number[] =>
    names.filter((name) => name.startsWith(`${kind}-`)).map((name) => Number(name.split("-")[1]));
  const fence = Math.max(0, ...numbers("floor"));
  if (token < fence) throw new StaleTokenError(path, token, fence);
  if (live !== undefined) await checkAmongLive(path, folder, token, Math.max(0, ...numbers("set")));
  const isOver = (one: number): boolean => one < floor || (live !== undefined && one < token && !live.includes(one));
  const remove = (kind: string, ends: (number: number) => boolean): Promise<unknown> =>
    Promise.all(
      names
        .filter((name) => name.startsWith(`${kind}-`) && ends(Number(name.split("-")[1])))
        .map((name) => rm(join(folder, name), { force: true })),
    );
  await Promise.all([remove("write", isOver), remove("draft", isOver)]);
  await remove("floor", (one) => one < floor);
  await remove("set", (one) => one < (live === undefined ? floor : token));
}

async function checkAmongLive(path: string, folder: string, token: number, newest: number): Promise<void> {
  if (token >= newest) return;
  let text: string;
  try {
    text = await readFile(join(folder, `set-${newest}`), "utf8");
  } catch (error) {
    if (!isCode(error, "ENOENT")) throw error;
    // It has made way for a newer one in this moment.
    const names = await readdir(folder);
    return checkAmongLive(
      path,
      folder,
      token,
      Math.max(0, ...names.map((name) => Number(/^set-(\d+)$/.exec(name)?.[1] ?? 0))),
    );
  }
  const live = JSON.parse(text) as readonly number[];
  if (!live.includes(token)) throw new StaleTokenError(path, token);
}

/** What a folder lists, on the disk. Windows cannot, and does by itself. */
async function settle(folder: string): Promise<void> {
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
