import { type Command, EXIT, flag, JSON_OPTION, URL_OPTION, UsageError } from "./command.js";
import { listText } from "./describe.js";
import { print } from "./print.js";
import { jsonText } from "./printable.js";
import { readStates } from "./screen.js";
import { openStore } from "./store.js";

export const ls: Command = {
  usage: "ls [options] [PREFIX]",
  summary: "list the names in use",
  options: { ...URL_OPTION, ...JSON_OPTION },
  examples: ["holdfast ls", "holdfast ls backup:", "holdfast ls --json | jq -r .name"],
  async main(given) {
    const [prefix = "", ...more] = given.words;
    if (more.length > 0) throw new UsageError("one prefix is enough");
    const { client, close } = await openStore(given);
    try {
      const states = await readStates(client, { prefix });
      // A line each, so that other programs can read as they come.
      if (flag(given, "json")) for (const state of states) await print(jsonText(state));
      else await print(listText(states));
      return EXIT.ok;
    } finally {
      await close();
    }
  },
};
