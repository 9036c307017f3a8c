import type { NameState } from "../core/inspect.js";
import { type Command, EXIT, flag, JSON_OPTION, seconds, URL_OPTION, UsageError, whole } from "./command.js";
import { type Stats, statsOf, statsText } from "./describe.js";
import { print } from "./print.js";
import { jsonText, printable } from "./printable.js";
import { type Drawing, drawAgain, readStates, Screen } from "./screen.js";
import { openStore } from "./store.js";

const EVERY_MS = 1_000;
const EVERY_MIN_MS = 50;
const TOP = 10;
const TOP_MAX = 1_000;

export const stats: Command = {
  usage: "stats [options] [PREFIX]",
  summary: "show what is waited for longest, and who holds longest",
  options: {
    ...URL_OPTION,
    top: { type: "string", value: "COUNT", help: `how many of each (${TOP})` },
    watch: { type: "boolean", help: "again and again, until Ctrl-C" },
    every: { type: "string", value: "SECONDS", help: "with --watch: how often to read the store (1)" },
    ...JSON_OPTION,
  },
  examples: ["holdfast stats", "holdfast stats --top 3 backup:", "holdfast stats --json | jq .waiting"],
  async main(given) {
    const [prefix = "", ...more] = given.words;
    if (more.length > 0) throw new UsageError("one prefix is enough");
    const top = whole(given, "top", 1, TOP_MAX) ?? TOP;
    const everyMs = Math.max(EVERY_MIN_MS, seconds(given, "every") ?? EVERY_MS);
    const json = flag(given, "json");
    const toText = (found: Stats): string => (json ? jsonText(found) : statsText(found));
    const { client, close } = await openStore(given);
    try {
      if (flag(given, "watch")) {
        const screen = !json && process.stdout.isTTY;
        await drawAgain(client, prefix, everyMs, () =>
          screen ? new StatsScreen(top) : new StatsLines(top, toText, json),
        );
      } else {
        const states = await readStates(client, { prefix });
        await print(toText(statsOf(states, top)));
      }
      return EXIT.ok;
    } finally {
      await close();
    }
  },
};

class StatsScreen extends Screen implements Drawing {
  constructor(readonly top: number) {
    super();
  }

  async show(states: readonly NameState[]): Promise<void> {
    this.paint(statsText(statsOf(states, this.top)));
  }
}

/** Elsewhere: the whole of it, each time. */
class StatsLines implements Drawing {
  constructor(
    readonly top: number,
    readonly toText: (found: Stats) => string,
    readonly json: boolean,
  ) {}

  async show(states: readonly NameState[]): Promise<void> {
    await print(this.toText(statsOf(states, this.top)));
  }

  async fail(message: string): Promise<void> {
    await print(this.json ? jsonText({ error: { message } }) : printable(message));
  }

  end(): void {}
}
