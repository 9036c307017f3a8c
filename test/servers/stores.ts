import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { startPostgres } from "./postgres.js";
import { quickFolder } from "./process.js";
import { startRedis } from "./redis.js";

export type Store = { readonly url: string; readonly stop: () => Promise<unknown> };

/** Stores that several processes share, by the beginning of their URLs; each call starts one of its own. */
export const SHARED_STORES = {
  async sqlite(): Promise<Store> {
    const folder = mkdtempSync(join(quickFolder(), "holdfast-"));
    return {
      url: `sqlite:${join(folder, "locks")}`,
      stop: async () => rmSync(folder, { recursive: true, force: true }),
    };
  },
  async redis(): Promise<Store> {
    const { url, running } = await startRedis();
    return { url, stop: () => running.stop() };
  },
  async postgres(): Promise<Store> {
    const { url, running } = await startPostgres();
    return { url, stop: () => running.stop() };
  },
} as const;
