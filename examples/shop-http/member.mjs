// One of the shop's web servers. POST /product/buy?lock=Y sells one item under the lock, /product/buy?lock=N without it.
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { noLock, open, serve, settings } from "../lib/member.mjs";
import { Stock } from "./stock.mjs";

const locks = await open();
const stock = new Stock(settings.shop);
const product = locks.mutex("example:shop");

/** The plain code of a shop that has never seen two buyers at once: read, work, write. */
async function buy() {
  const { left } = stock;
  if (left <= 0) return false;
  await sleep(4); // ask the bank, reserve a parcel, ...
  stock.sell(left - 1);
  return true;
}

async function answer({ url }, response) {
  const { pathname, searchParams } = new URL(url, "http://shop");
  if (pathname !== "/product/buy") return response.writeHead(404).end();
  const isSold = await (searchParams.get("lock") === "Y" ? product : noLock).using(buy);
  return response.writeHead(isSold ? 200 : 410).end(isSold ? "sold" : "sold out");
}

const server = createServer((request, response) => {
  answer(request, response).catch((error) => response.writeHead(503).end(error.message));
});

serve({
  listen: () => new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port))),
  async close() {
    server.close();
    server.closeAllConnections();
    stock.close();
    await locks.close();
  },
});
