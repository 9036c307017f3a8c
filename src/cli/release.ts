import { createInterface } from "node:readline/promises";
import { forceRelease } from "../core/force-release.js";
import { type HolderState, ownerText } from "../core/inspect.js";
import { type Command, EXIT, Failure, flag, JSON_OPTION, nameOf, URL_OPTION, UsageError, whole } from "./command.js";
import { printEither } from "./print.js";
import { printable } from "./printable.js";
import { openStore } from "./store.js";

export const release: Command = {
  usage: "release --force [options] NAME",
  summary: "take a lock from whoever holds it",
  options: {
    ...URL_OPTION,
    force: { type: "boolean", help: "needed: the holder may be at work" },
    yes: { type: "boolean", short: "y", help: "do not ask" },
    token: { type: "string", value: "TOKEN", help: "only the holder with this token" },
    ...JSON_OPTION,
  },
  examples: ["holdfast release --force --yes stuck"],
  async main(given) {
    const name = nameOf(given);
    const token = whole(given, "token", 1, Number.MAX_SAFE_INTEGER);
    if (!flag(given, "force")) {
      throw new UsageError("a lock is given back by whoever holds it; to take it away all the same, say --force");
    }
    const { client, close } = await openStore(given);
    try {
      const holders = ((await client.state(name))?.holders ?? []).filter(
        (one) => token === undefined || one.token === token,
      );
      if (holders.length === 0)
        throw new Failure(`nobody holds "${name}"${token === undefined ? "" : " with that token"}`, EXIT.conflict);
      if (!flag(given, "yes") && !(await agreed(name, holders))) return EXIT.conflict;
      const released: HolderState[] = [];
      for (const holder of holders) {
        if (await forceRelease(client, name, holder)) released.push(holder);
      }
      const facts = released.map(({ id, token, owner }) => ({ id, token, owner }));
      await printEither(given, { name, released: facts }, () => tell(name, released));
      return released.length > 0 ? EXIT.ok : EXIT.conflict;
    } finally {
      await close();
    }
  },
};

async function agreed(name: string, holders: readonly HolderState[]): Promise<boolean> {
  if (!process.stdin.isTTY) throw new UsageError("nobody is there to be asked; say --yes");
  const who = holders.map(({ owner }) => ownerText(owner)).join(", ");
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test(await terminal.question(printable(`Take "${name}" from ${who}? [y/N] `)));
  } finally {
    terminal.close();
  }
}

function tell(name: string, released: readonly HolderState[]): string {
  if (released.length === 0) return printable(`"${name}" had just been given back`);
  const lines = released.map(({ token, owner }) => {
    return `"${name}" was taken from ${ownerText(owner)}, which is told; the resource refuses its token ${token} once it has seen a newer one.`;
  });
  return lines.map(printable).join("\n");
}
