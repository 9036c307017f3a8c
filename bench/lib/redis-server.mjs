// A Redis of our own for a benchmark: a free port, no persistence, ended with the process.
import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { connect } from "node:net";
import { freePort, newFolder } from "./room.mjs";

export async function startRedis() {
  const port = await freePort();
  const folder = newFolder();
  const args = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder];
  const server = spawn("redis-server", args, { stdio: "ignore" });
  server.on("error", () => {
    console.error("redis-server is not installed; `npm test -- redis` installs it on Debian");
    process.exit(1);
  });
  const stop = () => {
    server.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  process.on("exit", stop);
  for (;;) {
    const open = await new Promise((resolve) => {
      const socket = connect(port, "127.0.0.1");
      socket.on("connect", () => resolve(true) || socket.destroy());
      socket.on("error", () => resolve(false));
    });
    const signal = (name) => () => void server.kill(name);
    const url = `redis://127.0.0.1:${port}`;
    if (open) return { port, url, stop, pause: signal("SIGSTOP"), resume: signal("SIGCONT") };
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
