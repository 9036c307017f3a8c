// A Redis of our own for a benchmark: a free port, no persistence, ended with the process.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export async function startRedis() {
  const probe = createServer();
  await new Promise((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
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
