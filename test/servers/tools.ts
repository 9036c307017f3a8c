import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const TOOLS = resolve(import.meta.dirname, "../../tools");

const load = (path: string): Promise<unknown> => import(pathToFileURL(join(TOOLS, path)).href);

/** What is installed on first use, by the folder under tools that names its packages. */
const INSTALLED = {
  drivers: "client libraries",
  orms: "ORMs",
  jobs: "job queues",
  "postgres-18": "PostgreSQL 18",
} as const;

export type Tool = keyof typeof INSTALLED;

export const isTool = (name: string): name is Tool => name in INSTALLED;

export async function installTool(name: Tool): Promise<void> {
  const { install } = (await load("install.mjs")) as { install: (folder: string, what: string) => void };
  install(name, INSTALLED[name]);
}

/** The folder of a tool whose packages are installed: install-first.ts does so for each file that names one. */
export function folderOf(name: Tool): string {
  return join(TOOLS, name);
}

/** A module of it. */
export async function toolModule(name: Tool, file: string): Promise<unknown> {
  return load(`${name}/${file}`);
}
