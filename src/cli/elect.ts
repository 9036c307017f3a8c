import { type Command, JSON_OPTION, nameOf, seconds, text, URL_OPTION } from "./command.js";
import { COMMAND_OPTIONS, withCommandRunner } from "./command-runner.js";
import { endBy } from "./signals.js";

export const elect: Command = {
  usage: "elect [options] NAME -- COMMAND...",
  summary: "run a command only while leader",
  runs: true,
  options: {
    ...URL_OPTION,
    value: { type: "string", value: "TEXT", help: "what the others learn about the leader, such as its address" },
    lease: { type: "string", value: "SECONDS", help: "how long the store waits for a heartbeat (10)" },
    label: { type: "string", value: "TEXT", help: "shown to others; else the command's name" },
    ...COMMAND_OPTIONS,
    ...JSON_OPTION,
  },
  examples: [
    "holdfast elect scheduler -- node scheduler.js",
    'holdfast elect --value "$(hostname):8080" api -- ./serve',
  ],
  async main(given) {
    const name = nameOf(given);
    const [value, leaseMs] = [text(given, "value"), seconds(given, "lease")];
    const { Election } = await import("../recipes/election.js");
    return withCommandRunner(given, name, undefined, async ({ client, signals, run, note, codeOf }) => {
      const election = new Election(client, name);
      for (;;) {
        const term = await election.campaign({
          ...(value === undefined ? {} : { value }),
          ...(leaseMs === undefined ? {} : { leaseMs }),
          signal: signals.leaving,
        });
        signals.leaving.throwIfAborted();
        const { token, signal } = term;
        note("elected", { token }, `leader of "${name}", term ${token}`);
        const ended = await run({ name, token, signal, throwIfLost: () => term.throwIfLost() });
        // The command is done, and so is its leader.
        if (ended.lost === null) return codeOf(ended, await term.resign().catch((error: unknown) => error));
        codeOf(ended);
        // Another may lead now. Stand again, unless somebody wanted the command to end.
        if (signals.ending !== null) return endBy(signals.ending);
      }
    });
  },
};
