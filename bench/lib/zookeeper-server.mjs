// A ZooKeeper server of our own for a benchmark, and Kazoo beside it: a free port, ended with the process.
import { spawn } from "node:child_process";
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { freePort, newFolder } from "./room.mjs";

const JARS = "/usr/share/java";

export async function startZooKeeper() {
  const port = await freePort();
  const folder = newFolder();
  const settings = [
    "tickTime=2000",
    `dataDir=${folder}`,
    `clientPort=${port}`,
    "clientPortAddress=127.0.0.1",
    "admin.enableServer=false",
    "4lw.commands.whitelist=*",
    "maxClientCnxns=0",
  ];
  writeFileSync(join(folder, "zoo.cfg"), settings.join("\n"));
  const jars = readdirSync(JARS).filter((file) => file.endsWith(".jar") && !/-\d[\w.]*\.jar$/.test(file));
  const path = jars.map((jar) => join(JARS, jar)).join(":");
  const main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
  const server = spawn("java", ["-Xmx512m", "-cp", path, main, join(folder, "zoo.cfg")], { stdio: "ignore" });
  server.on("error", () => {
    console.error("ZooKeeper is not installed; `npm test -- zookeeper` installs it on Debian");
    process.exit(1);
  });
  const stop = () => {
    server.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  process.on("exit", stop);
  while (!(await fourLetters(port, "srvr").catch(() => "")).includes("Mode:")) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const url = `zookeeper://127.0.0.1:${port}/bench`;
  const requests = () => packets(port, /^zk_packets_received\t(\d+)/gm);
  const messages = () => packets(port, /^zk_packets_(?:received|sent)\t(\d+)/gm);
  return { port, url, requests, messages, stop };
}

/** How many packets the server has had, or has had and sent. */
async function packets(port, which) {
  const text = await fourLetters(port, "mntr");
  return [...text.matchAll(which)].reduce((sum, [, count]) => sum + Number(count), 0);
}

function fourLetters(port, word) {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    // A server that is only just starting may take the connection and never answer.
    socket.setTimeout(2000, () => socket.destroy());
    socket.on("connect", () => socket.write(word));
    socket.on("data", (data) => (text += data));
    socket.on("error", reject);
    socket.on("close", () => resolve(text));
  });
}

/** Kazoo in a process of its own: `ask(word, count)` gives what `lib/kazoo-peer.py` measured. */
export async function startKazoo(port) {
  const script = join(import.meta.dirname, "kazoo-peer.py");
  const python = spawn("/usr/bin/python3", [script, `127.0.0.1:${port}`], { stdio: ["pipe", "pipe", "inherit"] });
  process.on("exit", () => python.kill("SIGKILL"));
  const lines = createInterface({ input: python.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error("Kazoo is not installed; `npm test -- zookeeper` installs it on Debian");
    return JSON.parse(value);
  };
  await next();
  return {
    async ask(word, count) {
      python.stdin.write(`${JSON.stringify([word, count])}\n`);
      return next();
    },
    stop: () => python.kill("SIGKILL"),
  };
}
