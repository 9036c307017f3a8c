// A process that prints on a printer which all of them share. The printer knows no jobs: it prints what comes.
import { setTimeout as sleep } from "node:timers/promises";
import { addLine, linesOf } from "../lib/files.mjs";
import { die, noLock, open, serve, settings } from "../lib/member.mjs";

const { lock, printer, pages } = settings;
const locks = await open();
const device = lock ? locks.mutex("example:printer") : noLock;

const isDone = (sheet = "ejected") => /page (\d) of \1$|^ejected$/.test(sheet);

const print = (document, failAt) =>
  device.using(async () => {
    // The lock is free, yet the one before may have died over its pages. Bring the device into a known state first.
    if (!isDone(linesOf(printer).at(-1))) addLine(printer, "ejected");
    for (let page = 1; page <= pages; page += 1) {
      await sleep(3);
      if (page === failAt) die();
      addLine(printer, `${document} page ${page} of ${pages}`);
    }
  });

serve({
  print: ({ document, failAt }) => print(document, failAt),
  close: () => locks.close(),
});
