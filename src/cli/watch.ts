import type { NameState } from "../core/inspect.js";
import { type Command, EXIT, flag, type Given, JSON_OPTION, seconds, URL_OPTION, UsageError } from "./command.js";
import { listText, stateText } from "./describe.js";
import { print } from "./print.js";
import { jsonText, printable } from "./printable.js";
import { type Drawing, drawAgain, Screen } from "./screen.js";
import { openStore } from "./store.js";

const EVERY_MS = 1_000;
const EVERY_MIN_MS = 50;

export const watch: Command = {
  usage: "watch [options] [PREFIX]",
  summary: "watch the names in use, live",
  options: {
    ...URL_OPTION,
    every: { type: "string", value: "SECONDS", help: "how often to read the store (1)" },
    ...JSON_OPTION,
  },
  examples: ["holdfast watch", "holdfast watch --every 0.2 backup:", "holdfast watch --json"],
  async main(given) {
    const [prefix = "", ...more] = given.words;
    if (more.length > 0) throw new UsageError("one prefix is enough");
    const everyMs = Math.max(EVERY_MIN_MS, seconds(given, "every") ?? EVERY_MS);
    const { client, close } = await openStore(given);
    try {
      const plain = flag(given, "json") || !process.stdout.isTTY;
      await drawAgain(client, prefix, everyMs, () => (plain ? new Changes(given) : new NamesScreen()));
      return EXIT.ok;
    } finally {
      await close();
    }
  },
};

class NamesScreen extends Screen implements Drawing {
  async show(states: readonly NameState[]): Promise<void> {
    const busy = states.filter(({ waiters }) => waiters.length > 0).map((state) => stateText(state));
    this.paint([listText(states), ...busy].join("\n\n"));
  }
}

/** Elsewhere: a line for each name that changed, and one when it is free again. */
class Changes implements Drawing {
  readonly #json: boolean;
  #before = new Map<string, string>();

  constructor(given: Given) {
    this.#json = flag(given, "json");
  }

  async show(states: readonly NameState[]): Promise<void> {
    const now = new Map(states.map((state) => [state.name, lineOf(state)]));
    for (const state of states) {
      if (this.#before.get(state.name) !== now.get(state.name)) await this.#tell(state);
    }
    for (const name of this.#before.keys()) {
      if (!now.has(name)) await this.#tell({ name, capacity: 0, lastToken: 0, holders: [], waiters: [] });
    }
    this.#before = now;
  }

  async fail(message: string): Promise<void> {
    await print(this.#json ? jsonText({ error: { message } }) : printable(message));
  }

  end(): void {}

  async #tell(state: NameState): Promise<void> {
    await print(this.#json ? jsonText(state) : printable(lineOf(state)));
  }
}

/** What counts as a change: not that time passes. */
function lineOf({ name, holders, waiters }: NameState): string {
  if (holders.length + waiters.length === 0) return `${name}: free`;
  const who = (claims: NameState["waiters"]): string =>
    claims.map(({ owner }) => `${owner.label ?? owner.host}:${owner.pid}`).join(" ");
  const tokens = holders.map(({ token }) => token).join(" ");
  return `${name}: held by ${who(holders)} (${tokens})${waiters.length === 0 ? "" : `, waiting: ${who(waiters)}`}`;
}
