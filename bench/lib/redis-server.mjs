// A Redis of our own, for benchmarks and for the examples that show what a crash does: a free port, no persistence unless
// asked for, ended with the process.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect } from "node:net";
import { freePort, newFolder } from "./room.mjs";

const stops = new Set();
process.on("exit", () => stops.forEach((stop) => stop()));

/** @param more further arguments of the server; @param at `{ port, folder }` of one that has crashed, to start it again */
export async function startRedis(more = [], at) {
  const { port, folder } = at ?? { port: await freePort(), folder: newFolder() };
  const args = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder];
  const server = spawn("redis-server", [...args, ...more], { stdio: "ignore" });
  server.on("error", () => {
    console.error("redis-server is not installed; `npm test -- redis` installs it on Debian");
    process.exit(1);
  });
  const stop = () => {
    server.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  /** Without a goodbye; the folder stays. */
  const crash = async () => {
    server.kill("SIGKILL");
    if (server.exitCode === null && server.signalCode === null) await once(server, "exit");
  };
  stops.add(stop);
  for (;;) {
    const open = await new Promise((resolve) => {
      const socket = connect(port, "127.0.0.1");
      socket.on("connect", () => resolve(true) || socket.destroy());
      socket.on("error", () => resolve(false));
    });
    const signal = (name) => () => void server.kill(name);
    const url = `redis://127.0.0.1:${port}`;
    if (open)
      return { port, folder, url, pid: server.pid, stop, crash, pause: signal("SIGSTOP"), resume: signal("SIGCONT") };
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
