// Items go from the stock to the orders and back, through three processes; one dies between its two writes. None may be
// lost, none may appear.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { say } from "../lib/screen.mjs";
import { Service } from "./service.mjs";

const title = "two-services: stock and orders are two databases, changed together; one process is killed in between";
const [ITEMS, MOVES] = [100, 12];

await example(import.meta.url, { title, stores: 2 }, async ({ fleet, folder }) => {
  const paths = { stock: join(folder, "stock.db"), orders: join(folder, "orders.db") };
  const [stock, orders] = [new Service(paths.stock, ITEMS), new Service(paths.orders, 0)];
  const [ann, bob, cy] = await fleet(3, { paths });

  const moveOften = async (member, from, to, count) => {
    for (let n = 1; n <= count; n += 1) await member.ask("move", { id: `${member.name} ${n}`, from, to });
  };
  const dying = async () => {
    await moveOften(bob, "stock", "orders", 3);
    await bob.dies("move", { id: "bob 4", from: "stock", to: "orders", fail: true });
  };
  await Promise.all([
    moveOften(ann, "stock", "orders", MOVES),
    moveOften(cy, "orders", "stock", MOVES), // a customer changes his mind
    dying(),
  ]);
  await ann.ask("move", { id: "ann last", from: "stock", to: "orders" }); // finishes what bob left, if nobody has yet

  const [left, ordered, expected] = [stock.amount, orders.amount, 3 + 1 + 1];
  stock.close();
  orders.close();
  say("", `${left} in stock, ${ordered} ordered`);
  return left === ITEMS - expected && ordered === expected
    ? []
    : [`there should be ${ITEMS - expected} in stock and ${expected} ordered`];
});
