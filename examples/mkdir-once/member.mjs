// A process that needs a folder with something in it, which whoever comes first has to make.

import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { addLine } from "../lib/files.mjs";
import { noLock, open, say, serve, settings } from "../lib/member.mjs";

const { name, lock, shared, log, files } = settings;
const locks = await open();

const ready = join(shared, ".ready");

async function make(stepMs) {
  // Whoever had begun it may have died. Only the file that is written last says that the rest is there.
  rmSync(shared, { recursive: true, force: true });
  mkdirSync(shared, { recursive: true });
  for (let n = 1; n <= files; n += 1) {
    await sleep(stepMs);
    writeFileSync(join(shared, `part-${n}`), `by ${name}`);
  }
  writeFileSync(ready, name);
  addLine(log, name);
  say("made the folder");
}

/** There when this resolves, whoever made it. False when somebody else was still busy with it after 500 ms. */
async function ensure({ stepMs }) {
  const hold = lock ? await locks.mutex("example:mkdir").tryAcquire({ waitMs: 500 }) : noLock;
  if (hold === null) return { busy: true };
  try {
    if (!existsSync(ready)) await make(stepMs);
    return { busy: false, saw: readdirSync(shared).length - 1 };
  } finally {
    await hold.release();
  }
}

serve({ ensure, close: () => locks.close() });
