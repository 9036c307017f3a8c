// A process of its own that waits for a message, or for a lock, each time it is told to, and says when it had it: all
// processes of a machine share the clock of `hrtime`.
import { createInterface } from "node:readline";
import { Redis } from "ioredis";
import { PEERS } from "./redis-peers.mjs";

const { kind, name, server } = JSON.parse(process.argv[2]);
const tell = (text) => process.stdout.write(`${text}\n`);

let wait;
if (kind === "bare PUBLISH") {
  const client = new Redis(server.port);
  let arrived = () => {};
  client.on("message", () => arrived());
  await client.subscribe(name);
  wait = async () => {
    await new Promise((resolve) => (arrived = resolve));
    return () => {};
  };
} else {
  const { take } = await PEERS[kind](server);
  wait = () => take(name);
}
tell("ready");
for await (const _ of createInterface(process.stdin)) {
  const release = await wait();
  const at = process.hrtime.bigint();
  await release();
  tell(at);
}
