// Takes a lock and does as it is told on its standard input: check, busy MS (a synchronous loop, and a check in the same turn), release, exit. Tells what happens, a JSON line each.
import { createInterface } from "node:readline";
import { connect } from "../../dist/index.js";

const options = JSON.parse(process.argv[2]);
const { url, name, recipe = "mutex", capacity = 1, acquire = {}, beside = [], connect: settings = {} } = options;
const tell = (event, facts = {}) => process.stdout.write(`${JSON.stringify({ event, at: Date.now(), ...facts })}\n`);

const locks = await connect(url, settings);
const lock = {
  mutex: () => locks.mutex(name),
  semaphore: () => locks.semaphore(name, capacity),
  read: () => locks.readWrite(name).read,
  write: () => locks.readWrite(name).write,
}[recipe]();
tell("ready", { pid: process.pid });

let hold;
const words = createInterface(process.stdin);
words.on("line", (word) => void obey(word));

async function obey(word) {
  try {
    if (word === "check") tell("checked", { state: hold.state, ...verdict() });
    if (word.startsWith("busy ")) {
      const end = performance.now() + Number(word.slice(5));
      while (performance.now() < end);
      tell("checked", { state: hold.state, ...verdict() });
    }
    if (word === "release") await hold.release().then(() => tell("released"));
    if (word === "exit") {
      await locks.close();
      words.close();
    }
  } catch (error) {
    tell("failed", { code: error.code, message: error.message });
  }
}

try {
  for (const { name, acquire } of beside) await locks.mutex(name).acquire(acquire);
  hold = await lock.acquire(acquire);
  hold.signal.addEventListener("abort", () => tell("told", { reason: hold.signal.reason.reason }));
  tell("held", { token: hold.token, id: hold.id });
} catch (error) {
  tell("failed", { code: error.code, message: error.message });
}

function verdict() {
  try {
    hold.throwIfLost();
    return { held: true };
  } catch (error) {
    return { held: false, code: error.code };
  }
}
