// A holder is stopped for longer than its lease, others take over and write, the first wakes up and writes what it had
// in mind. What the last holder wrote must stay.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { linesOf, until } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";
import { openDocument } from "./document.mjs";

const title =
  "paused-writer: a holder sleeps past its lease, two others write, one of them is killed; the first wakes up";
const flags = { "no-fence": "with the lock, but nobody looks at the token: must break" };

await example(import.meta.url, { title, flags }, async ({ fleet, folder, urls, flags }) => {
  const marks = join(folder, "marks");
  const document = await openDocument(urls[0], folder);
  const [ann, bob, cy] = await fleet(3, { marks, fence: !flags["no-fence"] });

  await ann.ask("take");
  const late = ann.ask("write", { sleepFirst: true });
  await until("ann sleeps", () => linesOf(marks).length === 1);
  say("ann", "stopped (SIGSTOP), between looking at its lock and writing");

  for (const member of [bob, cy]) {
    await member.ask("take"); // waits until the lease of the one before has ended
    await member.ask("write", {});
    if (member === bob) await bob.kill();
  }
  ann.wake();
  say("ann", "woken (SIGCONT)");
  await late;

  const text = await document.read();
  await document.close();
  say("", `the document says "${text}"`);
  return text === "written by cy" ? [] : ["cy wrote last with the lock in its hand, and somebody wrote over it"];
});
