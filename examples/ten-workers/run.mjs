// Ten workers in three processes come one after the other for one lock; the second dies with it, and two more of its process
// while they wait. The others must go in alone, and in the order in which they came.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { linesOf } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";

const title = "ten-workers: ten workers compete for one lock; the process of three of them is killed";
const WORKERS = Array.from({ length: 10 }, (_, n) => n + 1);

await example(import.meta.url, { title }, async ({ fleet, folder }) => {
  const log = join(folder, "log");
  const members = await fleet(3, { log });
  const [ann, bob, cy] = members;
  const memberOf = (number) => members[(number - 1) % 3];

  for (const number of WORKERS) await memberOf(number).ask("queue", { number, fail: number === 2 });
  say("", `${WORKERS.join(", ")} have come, in this order`);
  const dying = bob.dies("done");
  await Promise.all(members.map((member) => member.ask("begin").catch(() => {})));
  await Promise.all([dying, ann.ask("done"), cy.ask("done")]);

  const lines = linesOf(log);
  const served = lines.filter((line) => line.endsWith(" in")).map(Number.parseFloat);
  say("", `${served.join(", ")} went in`);
  const alive = WORKERS.filter((number) => number === 2 || memberOf(number) !== bob);
  return [
    ...together(lines),
    ...(served.join() === alive.join() ? [] : [`the order should have been ${alive.join(", ")}`]),
  ];
});

/** Who came in before the one before had gone, or had died. */
function together(lines) {
  return lines.flatMap((line, n) => {
    const before = lines[n - 1] ?? "nobody out";
    const isAlone = !line.endsWith(" in") || before.endsWith(" out") || before === "2 in";
    return isAlone ? [] : [`${line} after "${before}"`];
  });
}
