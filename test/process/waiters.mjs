// Waits for one lock many times over, and tells with which id and token each was served: one JSON line at the end.
import { connect } from "../../dist/index.js";

const { url, name, count, leaseMs } = JSON.parse(process.argv[2]);
const locks = await connect(url, { leaseMs });
const served = [];
const all = Array.from({ length: count }, async () => {
  const hold = await locks.mutex(name).acquire();
  served.push([hold.token, hold.id]);
  await hold.release();
});
await Promise.all(all);
process.stdout.write(`${JSON.stringify(served)}\n`);
await locks.close();
