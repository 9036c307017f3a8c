// A process of a fleet on which the same ticks fire everywhere, by node-cron and by croner.
import { appendFileSync } from "node:fs";
import { Cron } from "croner";
import { connect } from "holdfast";
import { nodeCronCoordinator, onceInFleet } from "holdfast/cron";
import cron from "node-cron";

const { url, log, name } = JSON.parse(process.argv[2] ?? "") as { url: string; log: string; name: string };
const note = (...words: unknown[]): void => appendFileSync(log, `${words.join(" ")}\n`);
const locks = await connect(url, { leaseMs: 2_000 });
cron.setRunCoordinator(nodeCronCoordinator(locks));
cron.schedule("* * * * * *", ({ date }) => note("node-cron", date.getTime(), name), { name: "one", distributed: true });
new Cron(
  "* * * * * *",
  onceInFleet(locks, "two", ({ at }) => note("croner", at.getTime(), name)),
);
process.send?.({ port: 0 });
