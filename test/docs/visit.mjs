// For the quick starts of docs/web.md: when their server listens, somebody buys an item twice, and the program ends.
import { Server } from "node:http";

process.env.PORT = "0";
// oxlint-disable-next-line unbound-method -- called on the server that emits
const { emit } = Server.prototype;
Server.prototype.emit = function (event, ...rest) {
  if (event === "listening") setImmediate(() => void visit(`http://127.0.0.1:${this.address().port}/items/7/buy`));
  return emit.call(this, event, ...rest);
};

async function visit(url) {
  const headers = { "Idempotency-Key": "0b4e1d" };
  const seen = [];
  for (let n = 0; n < 2; n += 1) {
    const response = await fetch(url, { method: "POST", headers });
    seen.push({ status: response.status, ...(await response.json()) });
  }
  const [first, second] = seen;
  const good = first.status === 200 && first.bought === "7" && first.token > 0 && second.status === 200;
  console.log(JSON.stringify(seen));
  process.exit(good ? 0 : 1);
}
