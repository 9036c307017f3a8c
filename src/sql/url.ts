import { readFileSync } from "node:fs";
import { InvalidOptionError } from "../core/errors.js";
import { decode } from "../engine-kit/hosts.js";
import type { LockTableOptions } from "./options.js";

/** Who the URL names; undefined where it names nobody. */
export type Account = { readonly username: string | undefined; readonly password: string | undefined };

/** A URL with the parameters that are for us taken out of it. */
export type LockTableUrl = {
  readonly url: URL;
  readonly account: Account;
  readonly own: LockTableOptions;
  /** One more parameter, which is taken out; undefined when it is not there. */
  readonly take: (key: string) => string | undefined;
  /** The same for one that is true or false. */
  readonly takeBoolean: (key: string) => boolean | undefined;
  readonly problem: (what: string) => InvalidOptionError;
};

/** `schema`, `wake` and `migrate`, as every database takes them. `allowed` is an example of a good URL. */
export function parseLockTableUrl(text: string, allowed: string): LockTableUrl {
  const problem = (what: string): InvalidOptionError => new InvalidOptionError("url", what, allowed);
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    // Not shown: it may hold a password.
    throw problem("it cannot be read");
  }
  const take = (key: string): string | undefined => {
    const value = url.searchParams.get(key) ?? undefined;
    url.searchParams.delete(key);
    return value;
  };
  const takeBoolean = (key: string): boolean | undefined => {
    const value = take(key);
    if (value === undefined) return undefined;
    if (value !== "true" && value !== "false") throw problem(`"${key}" is neither true nor false`);
    return value === "true";
  };
  const [schema, wake, migrate] = [take("schema"), take("wake"), takeBoolean("migrate")];
  const own: LockTableOptions = {
    ...(schema === undefined ? {} : { schema }),
    ...(wake === undefined ? {} : { wake: wake as "push" | "poll" }),
    ...(migrate === undefined ? {} : { migrate }),
  };
  const decoded = (part: string): string | undefined => decode(part, problem) || undefined;
  const account = { username: decoded(url.username), password: decoded(url.password) };
  return { url, account, own, take, takeBoolean, problem };
}

/** A file that the URL names: what is wrong with it is wrong with the URL, and no store was asked. */
export function readFileOf(key: string, path: string, problem: LockTableUrl["problem"]): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw problem(`"${key}" cannot be read: ${(error as Error).message}`);
  }
}
