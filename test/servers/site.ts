import { execFileSync } from "node:child_process";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const FOLDER = resolve(import.meta.dirname, "../../tools/site");
const load = (file: string): Promise<unknown> => import(pathToFileURL(join(FOLDER, file)).href);

export type BuiltSite = {
  readonly url: string;
  readonly server: { close(): void; closeAllConnections(): void };
};

/** The site of the docs, built and served. Its packages are there: `install-first.ts` saw to it before the run. */
export async function builtSite(): Promise<BuiltSite> {
  execFileSync(process.execPath, [join(FOLDER, "main.mjs"), "--if-changed"], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  return ((await load("serve.mjs")) as { serveSite(): Promise<BuiltSite> }).serveSite();
}

export async function installSite(): Promise<void> {
  ((await load("install.mjs")) as { install(): void }).install();
}
