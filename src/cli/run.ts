import { AcquireTimeoutError } from "../core/errors.js";
import { type Command, EXIT, JSON_OPTION, nameOf, URL_OPTION } from "./command.js";
import { COMMAND_OPTIONS, withCommandRunner } from "./command-runner.js";
import { ageText } from "./describe.js";
import { acquireOptionsOf, conflictCodeOf, LOCK_OPTIONS, lockOf } from "./lock-options.js";
import { printError } from "./print-error.js";

export const run: Command = {
  usage: "run [options] NAME -- COMMAND...",
  summary: "hold a lock while a command runs",
  runs: true,
  options: { ...URL_OPTION, ...LOCK_OPTIONS, ...COMMAND_OPTIONS, ...JSON_OPTION },
  examples: [
    "holdfast run backup -- ./backup.sh",
    "holdfast run -n backup -- ./backup.sh",
    "holdfast run -w 2.5 -E 99 deploy -c 'make && make install'",
    "holdfast run --semaphore 3 encoders -- ffmpeg -i in.mov out.mp4",
  ],
  async main(given) {
    const name = nameOf(given);
    const terms = acquireOptionsOf(given);
    const conflictCode = conflictCodeOf(given, EXIT.conflict);
    const json = given.values.json === true;
    return withCommandRunner(given, name, terms.waitMs, async ({ client, signals, run, note, codeOf }) => {
      const askedAt = client.clock.now();
      const asking = lockOf(client, given, name).acquire({ ...terms, signal: signals.leaving });
      const hold = await asking.catch((error: unknown) => {
        if (!(error instanceof AcquireTimeoutError)) throw error;
        printError(error, json);
        return null;
      });
      if (hold === null) return conflictCode;
      // It came with the grant: there is no command yet that could hear it.
      signals.leaving.throwIfAborted();
      const { token } = hold;
      const waitedMs = Math.round(client.clock.now() - askedAt);
      note("granted", { token, waitedMs }, `"${name}" is ours after ${ageText(waitedMs)}, token ${token}`);
      const ended = await run(hold);
      if (ended.lost !== null) return codeOf(ended);
      const failure: unknown = await hold.release().catch((error: unknown) => error);
      if (failure === undefined) note("released", { token }, `"${name}" is given back`);
      return codeOf(ended, failure);
    });
  },
};
