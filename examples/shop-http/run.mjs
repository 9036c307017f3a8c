// 200 requests at the same moment for 100 items, to three web servers, without the lock and with it; one server is killed. With
// the lock exactly 100 may be sold.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { until } from "../lib/files.mjs";
import { say, table } from "../lib/screen.mjs";
import { load } from "./load.mjs";
import { Stock } from "./stock.mjs";

const title = "shop-http: 200 requests to three web servers for 100 items; one server is killed while it sells";
const [ITEMS, REQUESTS] = [100, 200];

await example(import.meta.url, { title }, async ({ fleet, folder, lock }) => {
  const ways = lock ? ["N", "Y"] : ["N"];
  const rows = [];
  for (const way of ways) {
    const shop = join(folder, `shop-${way}.db`);
    const stock = new Stock(shop, ITEMS);
    const members = await fleet(3, { shop });
    const ports = await Promise.all(members.map((member) => member.ask("listen")));
    const servers = ports.map((port) => `http://127.0.0.1:${port}`);
    say("", `${REQUESTS} requests for ${ITEMS} items: POST /product/buy?lock=${way}`);
    const loading = load(servers, `/product/buy?lock=${way}`, REQUESTS);
    await until("ten are sold", () => stock.sold >= 10);
    await members[1].kill();
    const statuses = await loading;
    rows.push({ way, sold: stock.sold, left: stock.left, statuses });
    stock.close();
  }

  const head = ["", "sold", "left", "oversold", "answered 200", "answered 410"];
  const cells = rows.map(({ way, sold, left, statuses }) => [
    way === "Y" ? "with the lock" : "without",
    ...[sold, left, Math.max(0, sold - ITEMS), statuses[200] ?? 0, statuses[410] ?? 0],
  ]);
  console.log(`\n${table([head, ...cells])}`);
  // Without the lock it must oversell: otherwise the other row shows nothing.
  return rows.flatMap(({ way, sold, left }) => {
    if (way === "Y")
      return sold === ITEMS && left === 0 ? [] : [`with the lock ${sold} were sold and ${left} are left`];
    if (!lock) return sold > ITEMS ? [`${sold} were sold, and there were ${ITEMS}`] : [];
    return sold > ITEMS ? [] : [`without the lock ${sold} were sold, no more than there were`];
  });
});
