// One process of the hot-lock benchmark: some tasks fight for one lock for a while; what they saw is told as a JSON line.
import { PEERS } from "./redis-peers.mjs";

const { peer, port, tasks, forMs, name } = JSON.parse(process.argv[2]);
const { take, close } = await PEERS[peer]({ port, url: `redis://127.0.0.1:${port}` });
// Code that was never run is slow for everybody: first some fighting among ourselves.
const warm = async () => {
  for (let n = 0; n < 500; n += 1) await (await take(`warm ${process.pid}`))();
};
await Promise.race([
  Promise.all(Array.from({ length: tasks }, warm)),
  new Promise((resolve) => setTimeout(resolve, 5000)),
]);
// Everybody starts together, when told.
process.stdout.write("ready\n");
await new Promise((resolve) => process.stdin.once("data", resolve));
const until = performance.now() + forMs;
const work = async () => {
  const waits = [];
  while (performance.now() < until) {
    const asked = performance.now();
    const release = await take(name);
    waits.push(performance.now() - asked);
    await release();
  }
  return waits;
};
const waits = await Promise.all(Array.from({ length: tasks }, work));
process.stdout.write(`${JSON.stringify(waits)}\n`, () => process.exit(0));
await close();
