// A worker stalls in the middle of a job, the queue hands the job to a second one, which is killed, and to a third. Then the
// first wakes up. What the third wrote must stay.
import { join } from "node:path";
import { install } from "../../tools/install.mjs";
import { example } from "../lib/example.mjs";
import { linesOf, until } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";
import { openDocument } from "../paused-writer/document.mjs";

const title = "jobs: a job is handed to another worker while the first one only stands still";
const flags = { graphile: "Graphile Worker instead of pg-boss, with a postgres:// URL" };

function kindOf(url, { graphile }) {
  if (/^rediss?:/.test(url)) return "bullmq";
  if (/^postgres(ql)?:/.test(url)) return graphile ? "graphile-worker" : "pg-boss";
  throw Object.assign(new Error("give --url redis://… (BullMQ) or postgres://… (pg-boss, Graphile Worker)"), {
    code: "URL",
  });
}

await example(import.meta.url, { title, flags }, async ({ fleet, folder, urls, lock, flags }) => {
  const kind = kindOf(urls[0], flags);
  install("jobs", "job queues");
  const marks = join(folder, "marks");
  const did = (mark) => () => linesOf(marks).includes(mark);
  const document = await openDocument(urls[0], folder);
  const [ann, bob, cy] = await fleet(3, { marks, kind });

  await ann.ask("add", { id: "report-42" });
  ann.ask("work").catch(() => {}); // she may be asleep before she answers
  await until("ann sleeps", did("ann asleep"));
  say("ann", "stopped (SIGSTOP), in the middle of the job");

  await bob.ask("work");
  await until("the job is handed to bob", did("bob hangs"));
  await bob.kill();
  await cy.ask("work");
  await until("the job is handed to cy", did("cy wrote"));
  ann.wake();
  say("ann", "woken (SIGCONT)");
  await until("ann is refused", () => did("ann refused")() || did("ann wrote")());
  if (lock) await until("ann is told", did("ann told"));

  const text = await document.read();
  await document.close();
  say("", `the report says "${text}"`);
  return text === "written by cy" ? [] : ["cy did the job, and an older run wrote over it"];
});
