// One of the shop's server processes. The parent says which way to sell, to how many buyers, and when.
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "holdfast";
import { serve, settings } from "../lib/member.mjs";
import { segmented } from "./segments.mjs";

const { index, folder, url, database } = settings;
const { openTill, VARIANTS } = await (database === undefined ? import("./shop.mjs") : import("./database-shop.mjs"));
const locks = await connect(url ?? `sqlite:${folder}/locks.db`);
let sale = null;

serve({
  async prepare({ variant, segments, shop }) {
    const till = await openTill(shop);
    const way = segments === undefined ? VARIANTS[variant] : segmented(segments);
    sale = { till, buy: way({ till, locks, shop }) };
  },

  async sell({ at, buyers }) {
    // Let the clock come close, then wait out the rest: all servers begin in the same millisecond.
    await sleep(Math.max(0, at - Date.now() - 5));
    while (Date.now() < at);
    const answers = Array.from({ length: buyers }, async (_, n) => {
      const asked = performance.now();
      const sold = await sale.buy(`${index}-${n}`);
      return { sold, waitMs: performance.now() - asked };
    });
    const told = await Promise.all(answers);
    await sale.till.close();
    return told;
  },

  close: () => locks.close(),
});
