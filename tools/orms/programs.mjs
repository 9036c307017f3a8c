// Puts programs where they find this folder's packages, and the built library by its name.
import { cpSync, existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const OUT = join(import.meta.dirname, "out");

/** A folder of its own for each user, ready to hold programs. */
export function folderFor(name) {
  const folder = join(OUT, name);
  const library = join(folder, "node_modules/holdfast");
  mkdirSync(join(folder, "generated"), { recursive: true });
  mkdirSync(dirname(library), { recursive: true });
  if (!existsSync(library)) symlinkSync(resolve(import.meta.dirname, "../.."), library);
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }\n');
  cpSync(join(import.meta.dirname, "prisma-client.mjs"), join(folder, "generated/client.js"));
  return folder;
}
