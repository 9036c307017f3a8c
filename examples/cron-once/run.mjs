// The same schedule on three machines: each tick is run by one of them, also after one of them was killed.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { doubles, linesOf, until } from "../lib/files.mjs";

const title = "cron-once: the same job is scheduled on three machines; one is killed in the middle of it";

await example(import.meta.url, { title }, async ({ fleet, folder }) => {
  const log = join(folder, "log");
  const members = await fleet(3, { log, everyMs: 400 });
  const runs = () => linesOf(log).map((line) => line.split(" "));
  const ticks = () => runs().map(([tick]) => tick);
  const distinct = () => new Set(ticks()).size;

  for (const member of members) await member.ask("start");
  await until("three ticks", () => distinct() >= 3);
  const [, running] = runs().at(-1);
  await members.find(({ name }) => name === running).kill();
  await until("four ticks more", () => distinct() >= 7);

  const when = (tick) => new Date(Number(tick)).toISOString().slice(14, 23);
  return doubles(ticks()).map((tick) => {
    const machines = runs().filter((run) => run[0] === tick);
    return `the report of ${when(tick)} was made by ${machines.map(([, name]) => name).join(" and ")}`;
  });
});
