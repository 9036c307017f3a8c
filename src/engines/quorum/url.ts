import { InvalidOptionError } from "../../core/errors.js";

const FORM = "redlock://[user:password@]host[:port],host[:port],…[/database]";

/** The servers of a `redlock:` URL, each as a Redis URL with the same account and database, named by its host and port. */
export function parseRedlockUrl(url: string): readonly { readonly name: string; readonly url: string }[] {
  const [, account = "", hosts = "", database = ""] = /^redlock:\/\/([^@/?#]*@)?([^/?#@]+)(\/\d*)?$/i.exec(url) ?? [];
  const names = hosts.split(",");
  // The error does not contain the URL: it may hold a password.
  if (names.some((name) => name === "")) throw new InvalidOptionError("url", "it cannot be read", FORM);
  return names.map((name) => ({ name, url: `redis://${account}${name}${database}` }));
}
