import { InvalidOptionError } from "../../core/errors.js";

/** `sqlite:relative`, `sqlite:/absolute`, `sqlite:///absolute`; the rest of the text is the path as it stands. */
export function pathOfUrl(url: string): string {
  const rest = url.slice("sqlite:".length);
  const allowed = "sqlite: and a path, as in sqlite:./locks.db or sqlite:///var/lib/app/locks.db";
  if (rest === "") throw new InvalidOptionError("url", "it names no file", allowed);
  if (rest === ":memory:") {
    throw new InvalidOptionError(
      "url",
      "a database in memory is shared with no other process",
      `${allowed}; or memory:`,
    );
  }
  if (!rest.startsWith("//")) return rest;
  if (!rest.startsWith("///")) throw new InvalidOptionError("url", "it names a host, and a file has none", allowed);
  return rest.slice(2);
}
