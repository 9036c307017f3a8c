// Four processes want the same folder. The first to make it dies half way. It must be made once, and be whole for everybody.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { example } from "../lib/example.mjs";
import { linesOf, until } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";

const title =
  "mkdir-once: four processes want one folder, and wait for it up to 500 ms; the first is killed while it makes it";
const FILES = 8;

await example(import.meta.url, { title }, async ({ fleet, folder }) => {
  const [shared, log] = [join(folder, "shared"), join(folder, "log")];
  const [first, ...others] = await fleet(4, { shared, log, files: FILES });

  first.ask("ensure", { stepMs: 200 }).catch(() => {}); // it will not live to answer
  await until("the folder is half made", () => existsSync(join(shared, "part-1")));
  const asking = others.map(async (member) => {
    // A store takes up to its lease or session to notice a death: that can be longer than we wait in one go.
    for (let attempt = 1; attempt <= 40; attempt += 1) {
      const { busy, saw } = await member.ask("ensure", { stepMs: 15 });
      if (!busy) return saw === FILES ? [] : [`${member.name} saw ${saw} of ${FILES} files`];
      say(member.name, "still busy after 500 ms, asks again");
    }
    return [`${member.name} never got it`];
  });
  const seen = Promise.all(asking.map((seen) => seen.catch((error) => [error.message])));
  await sleep(50);
  await first.kill();

  const wrong = (await seen).flat();
  const makers = linesOf(log);
  return [...(makers.length === 1 ? [] : [`it was made ${makers.length} times, by ${makers.join(", ")}`]), ...wrong];
});
