// One of the shop's server processes. The parent says which way to sell, to how many buyers, and when.
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "holdfast";
import { serve, settings } from "../lib/member.mjs";
import { segmented } from "./segments.mjs";

/** How many buyers a server serves at a time; the others wait before it. */
const AT_ONCE = 100;
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
    const came = performance.now();
    const told = [];
    let next = 0;
    const attend = async () => {
      while (next < buyers) {
        const sold = await sale.buy(`${index}-${next++}`);
        told.push({ sold, waitMs: performance.now() - came });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, attend));
    await sale.till.close();
    return told;
  },

  close: () => locks.close(),
});
