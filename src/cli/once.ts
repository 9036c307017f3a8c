import { ownerText } from "../core/inspect.js";
import { type Command, EXIT, JSON_OPTION, nameOf, seconds, text, URL_OPTION } from "./command.js";
import { COMMAND_OPTIONS, withCommandRunner } from "./command-runner.js";
import { ageText } from "./describe.js";
import { conflictCodeOf, LOCK_OPTIONS } from "./lock-options.js";
import type { Ended } from "./supervise.js";

const { "conflict-exit-code": conflictOption, lease, label } = LOCK_OPTIONS;

export const once: Command = {
  usage: "once [options] NAME -- COMMAND...",
  summary: "run a command in one place of a fleet, as from cron on every machine",
  runs: true,
  options: {
    ...URL_OPTION,
    "at-least": { type: "string", value: "SECONDS", help: "not again for so long after its start, by anybody" },
    "at-most": { type: "string", value: "SECONDS", help: "ended after this, however long it goes on" },
    ...(conflictOption && { "conflict-exit-code": { ...conflictOption, help: "exit code when it was not run (0)" } }),
    ...(lease && { lease }),
    ...(label && { label }),
    ...COMMAND_OPTIONS,
    ...JSON_OPTION,
  },
  examples: ["holdfast once --at-least 50 --at-most 600 report -- ./report.sh"],
  async main(given) {
    const name = nameOf(given);
    const [atLeastForMs, atMostForMs] = [seconds(given, "at-least"), seconds(given, "at-most")];
    const [leaseMs, labelText] = [seconds(given, "lease"), text(given, "label")];
    const conflictCode = conflictCodeOf(given, EXIT.ok);
    const { Job } = await import("../recipes/job.js");
    return withCommandRunner(given, name, 0, async ({ client, signals, run, note, codeOf }) => {
      const job = new Job(client, name, {
        ...(atLeastForMs === undefined ? {} : { atLeastForMs }),
        ...(atMostForMs === undefined ? {} : { atMostForMs }),
        ...(leaseMs === undefined ? {} : { leaseMs }),
        ...(labelText === undefined ? {} : { label: labelText }),
      });
      let ended: Ended | undefined;
      let failure: unknown;
      const result = await job
        .run(async (hold) => {
          signals.leaving.throwIfAborted();
          note("granted", { token: hold.token }, `"${name}" runs here, token ${hold.token}`);
          ended = await run(hold);
        })
        .catch((error: unknown) => {
          if (ended === undefined) throw error;
          failure = error;
        });
      if (ended !== undefined) return codeOf(ended, failure);
      const holder = result?.ran === false ? result.holder : undefined;
      const where =
        holder === undefined ? `ran less than ${ageText(atLeastForMs ?? 0)} ago` : `runs at ${ownerText(holder)}`;
      note("not run", holder === undefined ? {} : { holder }, `"${name}" ${where}`);
      return conflictCode;
    });
  },
};
