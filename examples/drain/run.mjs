// Two workers, one of which works. Each gets SIGTERM, as in a rolling update: nothing is left half done, nobody waits for a lease.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { linesOf, until } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";

const title = "drain: workers are told to end (SIGTERM) while one of them works and the other waits";

await example(import.meta.url, { title, flags: { kill: "SIGKILL instead: must break" } }, async (given) => {
  const { folder, urls, lock, flags } = given;
  const log = join(folder, "log");
  const program = join(import.meta.dirname, "member.mjs");
  const workers = new Map();
  process.prependListener("exit", () => workers.forEach((worker) => worker.kill("SIGKILL")));
  const start = async (name) => {
    workers.set(
      name,
      spawn(process.execPath, [program, name, urls[0], log, String(lock)], { stdio: ["ignore", "ignore", "inherit"] }),
    );
  };
  const did = (line) => linesOf(log).includes(line);
  const stop = async (name) => {
    const signal = flags.kill ? "SIGKILL" : "SIGTERM";
    const ended = once(workers.get(name), "close");
    workers.get(name).kill(signal);
    const [code] = await ended;
    say(name, `was told to end (${signal}), and ended with ${code === null ? "the signal" : `code ${code}`}`);
    return code;
  };

  await start("ann");
  await until("ann works", () => did("ann part-done"));
  await start("bob");
  if (!lock) await until("bob works too", () => did("bob begins"));
  const codes = [await stop("ann")];
  await until("bob works", () => did("bob part-done"));
  codes.push(await stop("bob"));

  const lines = linesOf(log);
  const wrong = codes.filter((code) => code !== 0).map((code) => `a worker ended with code ${code}`);
  for (const name of workers.keys()) {
    const own = lines.filter((line) => line.startsWith(`${name} `)).map((line) => line.split(" ")[1]);
    if (own.at(-1) === "part-begun") wrong.push(`${name} left a part half done`);
    else if (own.at(-1) !== "ends") wrong.push(`${name} did not end its work`);
  }
  if (lines.indexOf("bob begins") < lines.indexOf("ann ends")) wrong.push("bob began before ann had ended");
  return wrong;
});
