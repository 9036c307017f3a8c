// Beside the usual files: how small files are opened in a folder that other users may write to.
import { type BigIntStats, closeSync, constants, fstatSync, lstatSync, openSync } from "node:fs";
import { dirname } from "node:path";

/** Which file a name leads to, or an open file is. */
export type FileId = Pick<BigIntStats, "dev" | "ino">;

type Opened = { readonly file: number; readonly id: FileId; readonly made: boolean };

/** Windows has neither of the two. */
const CAREFULLY = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);

/**
 * Opens a regular file that has this one name, in a folder that is no link. Others may have put something else there: a
 * FIFO would keep us waiting for ever, a symbolic or hard link would lead to somebody else's file.
 */
export function openRegularFile(path: string, flags: number, mode?: number): Opened {
  const folder = lstatSync(dirname(path));
  if (!folder.isDirectory()) throw new Error(`${dirname(path)} is not a folder`);
  const { file, made } = openOrMake(path, flags, mode);
  try {
    const stat = fstatSync(file, { bigint: true });
    if (!stat.isFile() || stat.nlink > 1n) throw new Error(`${path} is not a regular file with one name`);
    return { file, id: stat, made };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

function openOrMake(path: string, flags: number, mode?: number): { readonly file: number; readonly made: boolean } {
  const { O_CREAT, O_EXCL } = constants;
  if ((flags & O_CREAT) === 0) return { file: openSync(path, flags | CAREFULLY), made: false };
  try {
    return { file: openSync(path, flags | O_EXCL | CAREFULLY, mode), made: true };
  } catch (error) {
    if ((flags & O_EXCL) !== 0 || (error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    return { file: openSync(path, (flags & ~O_CREAT) | CAREFULLY), made: false };
  }
}

/** The file of this name, without following a link; undefined when there is none. */
export function fileAt(path: string): BigIntStats | undefined {
  return lstatSync(path, { bigint: true, throwIfNoEntry: false });
}

export function isSameFile(one: FileId, other: FileId | undefined): boolean {
  return other !== undefined && one.dev === other.dev && one.ino === other.ino;
}
