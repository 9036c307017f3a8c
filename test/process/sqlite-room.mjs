// node sqlite-room.mjs <folder>: in a small file system, with every amount of room that is left from none to enough, takes locks
// until it is refused; then there is room again. Says what was granted and not seen by another connection, or was wrong later.
import { closeSync, openSync, statfsSync, unlinkSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "../../dist/index.js";

const [folder] = process.argv.slice(2);
const file = `${folder}/locks.db`;
// Without room a call is tried again for this long.
const options = { callTimeoutMs: 200 };
const [locks, other] = [await connect(`sqlite:${file}`, options), await connect(`sqlite:${file}`, options)];
const leaseMs = 3_600_000;
// So that every table has its pages.
await (await locks.mutex("first").acquire({ leaseMs })).release();

/** Leaves so many bytes free. */
function fill(left) {
  const filler = openSync(`${folder}/filler`, "w");
  const { bfree, bsize } = statfsSync(folder);
  for (let n = 0; n < bfree - Math.ceil(left / bsize); n += 1) writeSync(filler, Buffer.alloc(bsize));
  closeSync(filler);
}

async function holdersOf(client, name) {
  for await (const { holders } of client.inspect({ name })) return holders.map(({ token }) => token);
  return [];
}

function integrity() {
  process.emitWarning = () => {};
  const builtin = process.getBuiltinModule("node:sqlite");
  const database = builtin ? new builtin.DatabaseSync(file) : new (createRequire(import.meta.url)("libsql"))(file);
  const [answer] = Object.values(database.prepare("PRAGMA integrity_check").get());
  database.close();
  return answer;
}

const report = { steps: 0, granted: 0, refused: 0, wrong: [], codes: [] };
let last = 0;
for (const left of [0, 1, 2, 3, 4, 6, 8, 12, 16, 24]) {
  report.steps += 1;
  fill(left * 4096);
  const held = [];
  for (let n = 0; n < 25; n += 1) {
    const name = `${left} ${n} ${"x".repeat(300)}`;
    try {
      const hold = await locks.mutex(name).tryAcquire({ leaseMs });
      if (hold === null) report.wrong.push(`${name}: busy, although nobody has it`);
      else held.push({ name, hold });
    } catch (error) {
      report.refused += 1;
      report.codes.push(error.code);
      break;
    }
  }
  report.granted += held.length;
  const check = async (when) => {
    for (const { name, hold } of held) {
      hold.throwIfLost();
      const [token] = await holdersOf(other, name);
      if (token !== hold.token) report.wrong.push(`${when}: ${name.slice(0, 6)} has ${token}, not ${hold.token}`);
    }
  };
  await check("without room");
  unlinkSync(`${folder}/filler`);
  await check("with room again");
  if (integrity() !== "ok") report.wrong.push(`left ${left}: ${integrity()}`);
  for (const { hold } of held) await hold.release();
  // The refused ones left nothing, and it goes on.
  const again = await other.mutex("first").acquire({ leaseMs, waitMs: 20_000 });
  if (again.token <= last) report.wrong.push(`token ${again.token} after ${last}`);
  last = again.token;
  await again.release();
  const names = [];
  for await (const { name } of other.inspect()) names.push(name.slice(0, 6));
  if (names.length > 0) report.wrong.push(`left ${left}: ${names.join(", ")} are still there`);
}
report.codes = [...new Set(report.codes)];
process.stdout.write(`${JSON.stringify(report)}\n`);
process.exit(0);
