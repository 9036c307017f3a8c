// Moves items between the stock and the orders: two services, two databases, and a lock in each of two stores.
import { setTimeout as sleep } from "node:timers/promises";
import { die, noLock, open, serve, settings } from "../lib/member.mjs";
import { Service } from "./service.mjs";

const { lock, paths, urls } = settings;
const services = { stock: new Service(paths.stock), orders: new Service(paths.orders) };
const [stockLocks, orderLocks] = [await open(urls[0]), await open(urls[1])];

// Both or none. The order of the list means nothing: all programs take them in the same order, so nobody waits in a circle.
const mutexes = [stockLocks.mutex("example:stock"), orderLocks.mutex("example:orders")];
const both = lock ? stockLocks.all(mutexes) : noLock;

async function change(service, id, by) {
  const amount = service.amount;
  await sleep(2);
  service.write(id, by, amount + by);
}

/** A lock is not a transaction. Whoever died between the two writes left a move in one database only: finish it. */
async function finishWhatOthersBegan() {
  const { stock, orders } = services;
  for (const [from, to] of [
    [stock, orders],
    [orders, stock],
  ]) {
    const arrived = to.moves;
    for (const [id, by] of from.moves) if (!arrived.has(id)) await change(to, id, -by);
  }
}

const move = ({ id, from, to, fail }) =>
  both.using(async () => {
    await finishWhatOthersBegan();
    await change(services[from], id, -1);
    if (fail) die();
    await change(services[to], id, 1);
  });

serve({
  move,
  async close() {
    for (const service of Object.values(services)) service.close();
    await Promise.all([stockLocks.close(), orderLocks.close()]);
  },
});
