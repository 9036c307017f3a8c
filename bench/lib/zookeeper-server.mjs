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
  const path = classpath();
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

function classpath() {
  const jars = readdirSync(JARS).filter((file) => file.endsWith(".jar") && !/-\d[\w.]*\.jar$/.test(file));
  return jars.map((jar) => join(JARS, jar)).join(":");
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
  return startPeer("Kazoo", "/usr/bin/python3", [script, `127.0.0.1:${port}`], (...asked) => JSON.stringify(asked));
}

/** Curator in the same way: `lib/CuratorPeer.java`. */
export async function startCurator(port) {
  const program = join(import.meta.dirname, "CuratorPeer.java");
  const args = ["-Xmx256m", "-cp", classpath(), program, `127.0.0.1:${port}`];
  return startPeer("Curator", "java", args, (...asked) => asked.join(" "));
}

async function startPeer(name, program, args, question) {
  const peer = spawn(program, args, { stdio: ["pipe", "pipe", "ignore"] });
  process.on("exit", () => peer.kill("SIGKILL"));
  const lines = createInterface({ input: peer.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`${name} is not installed; \`npm test -- zookeeper\` installs it on Debian`);
    return JSON.parse(value);
  };
  await next();
  return {
    async ask(word, count) {
      peer.stdin.write(`${question(word, count)}\n`);
      return next();
    },
    stop: () => peer.kill("SIGKILL"),
  };
}
