// The processes of an example, as their parent sees them. Each runs a program that calls `serve` of member.mjs.
import { fork } from "node:child_process";
import { once } from "node:events";
import { progress, say } from "./screen.mjs";

const NAMES = ["ann", "bob", "cy", "dee"];

/** None outlives its parent, not even one that was stopped. Before other exit listeners: those remove what it uses. */
const children = new Set();
process.prependListener("exit", () => children.forEach((child) => child.kill("SIGKILL")));

/** One process: it is asked, and it is killed, stopped and woken. */
class Member {
  #process;
  #asked = 0;
  #waiting = new Map();
  /** Set when this end was wanted; any other is an error of the example. */
  #mayEnd = false;
  #quiet;

  constructor(name, program, settings) {
    this.name = name;
    this.#quiet = settings.quiet === true;
    this.#process = fork(program, [JSON.stringify({ name, ...settings })]);
    this.#process.on("message", (message) => this.#hear(message));
    this.#process.on("exit", (code, signal) => this.#ended(code ?? signal));
    children.add(this.#process.on("exit", () => children.delete(this.#process)));
  }

  /** Resolves with the answer; rejects when the command fails there, or when the process ends before it answers. */
  ask(command, details = {}) {
    const number = (this.#asked += 1);
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#process.send({ number, command, details }, (error) => error && this.#settle(number, { error }));
    });
  }

  /** No goodbye: nothing of it runs any more, not even a `finally`. */
  async kill() {
    this.#mayEnd = true;
    this.#process.kill("SIGKILL");
    await this.#exited();
    if (!this.#quiet) say(this.name, "killed (SIGKILL)");
  }

  /** Asks for something on the way of which it kills itself, at a place that a parent could not hit from outside. */
  async dies(command, details) {
    this.#mayEnd = true;
    const outcome = await this.ask(command, details).then(
      () => `${this.name} should have died and answered`,
      () => null,
    );
    if (outcome !== null) throw new Error(outcome);
    await this.#exited();
    say(this.name, "killed (SIGKILL)");
  }

  /** As if the machine were busy with something else: it does not notice. */
  stop() {
    this.#process.kill("SIGSTOP");
  }

  wake() {
    this.#process.kill("SIGCONT");
  }

  /** The regular end. */
  async close() {
    this.#mayEnd = true;
    if (this.#process.connected) this.#process.send({ command: "close" });
    await this.#exited();
    if (this.#process.exitCode > 0) throw new Error(`${this.name} did not end well`);
  }

  async #exited() {
    const { exitCode, signalCode } = this.#process;
    if (exitCode === null && signalCode === null) await once(this.#process, "exit");
  }

  #hear({ number, said, ...outcome }) {
    if (said === undefined) this.#settle(number, outcome);
    else say(this.name, said);
  }

  #settle(number, { answer, error }) {
    const { resolve, reject } = this.#waiting.get(number) ?? {};
    this.#waiting.delete(number);
    if (error === undefined) resolve?.(answer);
    else reject?.(Object.assign(new Error(error.message), error));
  }

  #ended(how) {
    for (const number of [...this.#waiting.keys()])
      this.#settle(number, { error: { message: `${this.name} ended (${how})` } });
    if (this.#mayEnd) return;
    progress("");
    console.error(`${this.name} ended (${how}) although nobody asked it to`);
    process.exit(2);
  }
}

/** So many processes of one program, ready to be asked. With `quiet` in the settings nothing is printed of them. */
export async function startFleet(count, program, settings) {
  if (!settings.quiet) progress(`starting ${count} processes ...`);
  const members = NAMES.slice(0, count).map((name, index) => new Member(name, program, { index, ...settings }));
  await Promise.all(members.map((member) => member.ask("ready")));
  if (!settings.quiet) progress("");
  return members;
}
