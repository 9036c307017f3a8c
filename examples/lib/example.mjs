// The frame around each example: arguments, a folder of its own, the processes, the verdict and the exit code:
// 0 when what must hold held, 1 when it did not, 2 when the example could not run.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { connect } from "holdfast";
import { startFleet } from "./fleet.mjs";
import { paint, progress } from "./screen.mjs";

/**
 * @param here `import.meta.url` of the example; its processes run `member.mjs` beside it
 * @param about `title`; `stores` (1): how many URLs it takes; `flags`: flags of its own, each with what it does
 * @param run gets `{ fleet, folder, urls, lock, flags }`, answers what went wrong, a line each: nothing when all is well
 */
export async function example(here, { title, stores = 1, flags = {} }, run) {
  const name = basename(dirname(fileURLToPath(here)));
  const known = { "no-lock": "the same without the lock: must break", ...flags };
  const { values, problem } = read(known, stores);
  if (problem !== undefined || values.help) {
    const lines = Object.entries(known).map(([flag, what]) => `  --${flag.padEnd(12)} ${what}`);
    const url = `  --url URL      where the locks are${stores > 1 ? `, ${stores} times` : ""}; a file of its own unless given`;
    const text = [`${title}\n\nusage: npm run example -- ${name} [options]`, url, ...lines].join("\n");
    if (problem === undefined) return console.log(text);
    console.error(`${problem}\n\n${text}`);
    return process.exit(2);
  }
  const folder = mkdtempSync(join(tmpdir(), `holdfast-${name}-`));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(2));
  const urls = values.url ?? Array.from({ length: stores }, (_, n) => `sqlite:${join(folder, `locks-${n + 1}.db`)}`);
  const lock = !values["no-lock"];
  const members = [];
  const fleet = async (count, more = {}) => {
    const program = fileURLToPath(new URL("member.mjs", here));
    const started = await startFleet(count, program, { folder, url: urls[0], urls, lock, ...more });
    members.push(...started);
    return started;
  };
  try {
    for (const url of urls) await (await connect(url)).close();
    console.log(`${paint("bold", title)}${lock ? "" : paint("red", "\n(without the lock)")}\n`);
    const wrong = await run({ fleet, folder, urls, lock, flags: values });
    await Promise.all(members.map((member) => member.close()));
    conclude(wrong);
  } catch (error) {
    progress("");
    console.error(error.code === undefined ? error.stack : `${error.message} (${error.code})`);
    process.exit(2);
  }
}

function read(known, stores) {
  const flags = Object.fromEntries(Object.keys(known).map((flag) => [flag, { type: "boolean", default: false }]));
  const url = { type: "string", multiple: true };
  try {
    const { values } = parseArgs({ options: { ...flags, url, help: { type: "boolean", short: "h", default: false } } });
    const given = values.url?.length ?? stores;
    if (given !== stores) return { problem: `--url was given ${given} time(s): ${stores} wanted, or none` };
    if (values.url?.some((url) => url.startsWith("memory:")))
      return { problem: "memory: is the memory of one process; there are several here" };
    return { values };
  } catch (error) {
    return { problem: error.message };
  }
}

function conclude(wrong) {
  console.log("");
  for (const line of wrong.slice(0, 5)) console.log(`  ${line}`);
  if (wrong.length > 5) console.log(`  ... and ${wrong.length - 5} more`);
  console.log(wrong.length > 0 ? paint("red", "broken") : paint("green", "as it must be"));
  process.exitCode = wrong.length > 0 ? 1 : 0;
}
