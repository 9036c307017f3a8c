// Two processes that want a core each, for what is measured while the machine has no idle core.
import { spawn } from "node:child_process";

/** Spins, and looks up now and then: when whoever started it is gone, so is its standard input, and it ends. */
const SPIN = `
  process.stdin.on("end", () => process.exit()).resume();
  const spin = () => { const end = Date.now() + 50; while (Date.now() < end); setImmediate(spin); };
  spin();
`;

const running = new Set();
process.on("exit", () => stopBusy());

export function startBusy(count = 2) {
  for (let n = 0; n < count; n += 1)
    running.add(spawn(process.execPath, ["-e", SPIN], { stdio: ["pipe", "ignore", "ignore"] }));
}

export function stopBusy() {
  for (const child of running) child.kill("SIGKILL");
  running.clear();
}
