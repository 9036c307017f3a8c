import { SystemChance } from "../../core/clock.js";
import type { Engine } from "../../core/engine.js";
import { sqliteEngine } from "./engine.js";
import type { SqliteOptions } from "./options.js";
import { defaultPath, makePrivate } from "./path.js";
import { pathOfUrl } from "./url.js";

/** `sqlite:path`; without a URL the file in the user's state folder. */
export async function openSqlite(url?: string, options: SqliteOptions = {}): Promise<Engine> {
  const path = url === undefined ? defaultPath() : pathOfUrl(url);
  if (url === undefined) makePrivate(path, new SystemChance());
  const engine = sqliteEngine(path, options);
  await engine.ready();
  return engine;
}
