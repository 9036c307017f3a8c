import { type Command, EXIT, JSON_OPTION, nameOf, URL_OPTION } from "./command.js";
import { stateText } from "./describe.js";
import { printEither } from "./print.js";
import { printable } from "./printable.js";
import { openStore } from "./store.js";

export const show: Command = {
  usage: "show [options] NAME",
  summary: "show who holds a lock and who waits for it",
  options: { ...URL_OPTION, ...JSON_OPTION },
  examples: ["holdfast show backup", "holdfast show --json backup | jq .holders"],
  async main(given) {
    const name = nameOf(given);
    const { client, close } = await openStore(given);
    try {
      const idle = { name, capacity: 0, lastToken: 0, holders: [], waiters: [] };
      const state = await client.state(name);
      await printEither(given, state ?? idle, () =>
        state === undefined ? printable(`"${name}" is free`) : stateText(state),
      );
      return EXIT.ok;
    } finally {
      await close();
    }
  },
};
