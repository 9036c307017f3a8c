import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const FOLDER = resolve(import.meta.dirname, "../../tools/web");

export const loadWebTool = (file: string): Promise<unknown> => import(pathToFileURL(join(FOLDER, file)).href);

export async function installWebFrameworks(): Promise<void> {
  ((await loadWebTool("install.mjs")) as { install(): void }).install();
}
