import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { lstat, mkdir, readdir, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { InvalidOptionError } from "../../src/core/errors.js";
import { fencedWriteFile, raiseFile, StaleTokenError } from "../../src/fence/index.js";

function folderOf(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-files-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A file that was written with token 20. */
async function written() {
  const folder = folderOf();
  const path = join(folder, "file");
  await fencedWriteFile(path, "twenty", 20);
  return { folder, path, fence: `${path}.fence`, elsewhere: join(folder, "elsewhere") };
}

/** Whoever opens it without care waits for ever. */
function fifo(path: string): void {
  execFileSync("mkfifo", [path]);
}

test.each([
  "floor-20~",
  "floor-20.bak",
  "floor-",
  "floor-x",
  "floor-1e9",
  "floor-0x15",
  "floor-021",
  "floor-9007199254740993",
  "set-20~",
  "set-",
])("with %s in its folder nothing is written, old or new, until it is gone", async (stray) => {
  const { path, fence } = await written();
  await writeFile(join(fence, stray), "");
  for (const token of [19, 20, 21]) {
    const shown = stray.startsWith("set") ? { token, floor: token, live: [token] } : token;
    const error: unknown = await fencedWriteFile(path, "late", shown).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(String(error)).toContain(stray);
  }
  expect(await readFile(path, "utf8")).toBe("twenty");
  expect((await readdir(fence)).filter((name) => name.startsWith("write-"))).toEqual([]);
  await rm(join(fence, stray));
  await expect(fencedWriteFile(path, "late", 19)).rejects.toThrow(StaleTokenError);
  await fencedWriteFile(path, "new", 21);
  expect(await readFile(path, "utf8")).toBe("new");
});

test("what does not begin like a marker is left alone and changes nothing", async () => {
  const { path, fence } = await written();
  const strays = [".DS_Store", "notes", "floor", "floors-99", "write-~", "write--x", "write-", "draft-x", "draft-"];
  for (const stray of strays) await writeFile(join(fence, stray), "");
  await mkdir(join(fence, "folder"));
  await expect(fencedWriteFile(path, "late", 19)).rejects.toThrow(StaleTokenError);
  await fencedWriteFile(path, "new", 21);
  expect((await readdir(fence)).toSorted()).toEqual([...strays, "folder", "floor-21"].toSorted());
});

test("a link to a file that is not there yet shares the fence of that file", async () => {
  const folder = folderOf();
  const [path, alias, chain] = [join(folder, "file"), join(folder, "alias"), join(folder, "sub", "chain")];
  await mkdir(join(folder, "sub"));
  await symlink("file", alias);
  await symlink("../alias", chain);
  await raiseFile(chain, 20);
  await expect(fencedWriteFile(path, "late", 19)).rejects.toThrow(StaleTokenError);
  await expect(fencedWriteFile(alias, "late", 19)).rejects.toThrow(StaleTokenError);
  await fencedWriteFile(chain, "new", 21);
  expect([await readFile(path, "utf8"), await readlink(alias), await readlink(chain)]).toEqual([
    "new",
    "file",
    "../alias",
  ]);
  await expect(fencedWriteFile(path, "late", 20)).rejects.toThrow(StaleTokenError);
  expect((await readdir(folder)).toSorted()).toEqual(["alias", "file", "file.fence", "sub"]);
});

test("links that lead round in a circle, or into a folder that is not there, are refused", async () => {
  const folder = folderOf();
  await symlink("loop", join(folder, "loop"));
  await symlink("none/file", join(folder, "nowhere"));
  await expect(fencedWriteFile(join(folder, "loop"), "a", 5)).rejects.toThrow(/ELOOP/);
  await expect(fencedWriteFile(join(folder, "nowhere"), "a", 5)).rejects.toThrow(/ENOENT/);
  expect((await readdir(folder)).toSorted()).toEqual(["loop", "nowhere"]);
});

test("a marker that is a link makes no file elsewhere, and counts", async () => {
  const { path, fence, elsewhere } = await written();
  await symlink(elsewhere, join(fence, "floor-21"));
  await fencedWriteFile(path, "new", 21);
  await expect(lstat(elsewhere)).rejects.toThrow(/ENOENT/);
  await expect(fencedWriteFile(path, "late", 20)).rejects.toThrow(StaleTokenError);
});

test("a marker or a set that is a FIFO keeps nobody waiting", async () => {
  const { path, fence } = await written();
  fifo(join(fence, "floor-21"));
  await fencedWriteFile(path, "new", 21);
  await expect(fencedWriteFile(path, "late", 20)).rejects.toThrow(StaleTokenError);
  fifo(join(fence, "set-30"));
  const shown = { token: 29, floor: 29, live: [29] };
  await expect(fencedWriteFile(path, "late", shown)).rejects.toThrow(InvalidOptionError);
  expect(await readFile(path, "utf8")).toBe("new");
});

test.each(["", "[30", '"29,30"', "[29.5, 30]", "29", '{"includes": 1}'])(
  "a set that says %j is refused and lets nobody in",
  async (text) => {
    const { path, fence } = await written();
    await writeFile(join(fence, "set-30"), text);
    await expect(fencedWriteFile(path, "late", { token: 29, floor: 29, live: [29] })).rejects.toThrow(
      InvalidOptionError,
    );
    expect(await readFile(path, "utf8")).toBe("twenty");
  },
);

test("a set that is a folder is refused", async () => {
  const { path, fence } = await written();
  await mkdir(join(fence, "set-30"));
  await expect(fencedWriteFile(path, "late", { token: 29, floor: 29, live: [29] })).rejects.toThrow(InvalidOptionError);
});

test("a set that is a link elsewhere is refused", async () => {
  const { path, fence, elsewhere } = await written();
  await writeFile(elsewhere, "[29, 30]");
  await symlink(elsewhere, join(fence, "set-30"));
  await expect(fencedWriteFile(path, "late", { token: 29, floor: 29, live: [29] })).rejects.toThrow(InvalidOptionError);
});

test("a fence that is a link, or no folder, is refused", async () => {
  const { folder, path, elsewhere } = await written();
  await mkdir(elsewhere);
  const second = join(folder, "second");
  await symlink(elsewhere, `${second}.fence`);
  await expect(fencedWriteFile(second, "a", 5)).rejects.toThrow(InvalidOptionError);
  expect(await readdir(elsewhere)).toEqual([]);
  const third = join(folder, "third");
  await writeFile(`${third}.fence`, "");
  await expect(fencedWriteFile(third, "a", 5)).rejects.toThrow(/EEXIST|not a folder/);
  await expect(fencedWriteFile(path, "late", 19)).rejects.toThrow(StaleTokenError);
});

test("a raise lifts the fence and never lowers it, and is refused where the fence cannot be read", async () => {
  const path = join(folderOf(), "file");
  await raiseFile(path, 20);
  await raiseFile(path, 10);
  await expect(fencedWriteFile(path, "a", 19)).rejects.toThrow(StaleTokenError);
  await fencedWriteFile(path, "b", 20);
  await writeFile(`${path}.fence/floor-30~`, "");
  await expect(raiseFile(path, 40)).rejects.toThrow(InvalidOptionError);
});

test("sets that a newer one has replaced are cleared away, and the newest stays for as long as it counts", async () => {
  const path = join(folderOf(), "file");
  const sets = async (): Promise<string[]> =>
    (await readdir(`${path}.fence`)).filter((name) => name.startsWith("set-"));
  await fencedWriteFile(path, "a", { token: 7, floor: 5, live: [5, 7] });
  await fencedWriteFile(path, "b", { token: 9, floor: 5, live: [5, 9] });
  expect(await sets()).toEqual(["set-9"]);
  // Without a set of its own: what lies above its floor stays.
  await fencedWriteFile(path, "c", { token: 11, floor: 9 });
  expect(await sets()).toEqual(["set-9"]);
  await fencedWriteFile(path, "d", { token: 12, floor: 10 });
  expect(await sets()).toEqual([]);
});

test("what is no path, and an option that there is not, is refused; a clock of the caller's own counts", async () => {
  const path = join(folderOf(), "file");
  const clock = { now: () => 0, wallMs: () => 1_000_000, after: () => ({}), cancel: () => {} };
  for (const write of [
    (to: unknown, options?: object) => fencedWriteFile(to as string, "a", 1_001_000_000, options),
    (to: unknown, options?: object) => raiseFile(to as string, 1_001_000_000, options),
  ]) {
    for (const wrong of ["", undefined, 5, null]) await expect(write(wrong)).rejects.toThrow(InvalidOptionError);
    await expect(write(path, { ahead: 5 })).rejects.toThrow(/no such option/);
    await expect(write(path, { clock, aheadMs: 999 })).rejects.toThrow(/ahead of the clock/);
    await write(path, { clock, aheadMs: 1000 });
  }
});
