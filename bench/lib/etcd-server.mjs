// An etcd of our own for a benchmark: a free port, its data in memory where there is room, ended with the process.
import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { freePort, newFolder } from "./room.mjs";

export async function startEtcd() {
  const [port, peer] = [await freePort(), await freePort()];
  const folder = newFolder();
  const [client, peers] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${peer}`];
  const args = [
    ...["--data-dir", folder, "--log-level", "error", "--listen-client-urls", client],
    ...["--advertise-client-urls", client, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers],
    ...["--initial-cluster", `default=${peers}`],
  ];
  const server = spawn("etcd", args, { stdio: "ignore" });
  server.on("error", () => {
    console.error("etcd is not installed; `npm test -- etcd` installs it on Debian");
    process.exit(1);
  });
  const stop = () => {
    server.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  process.on("exit", stop);
  for (;;) {
    const health = await fetch(`${client}/health`).then(
      (answer) => answer.text(),
      () => "",
    );
    if (health.includes('"true"')) return { port, url: `etcd://127.0.0.1:${port}`, stop };
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
