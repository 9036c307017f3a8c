// One of the shop's server processes. The parent says which way to sell, to how many buyers, and when.
import { connect } from "holdfast";

const [folder, url] = process.argv.slice(2);
const { openTill, VARIANTS } = await (url === undefined ? import("./shop.mjs") : import("./database-shop.mjs"));
const locks = await connect(url ?? `sqlite:${folder}/locks.db`);
let sale = null;

const commands = {
  async prepare({ variant, shop }) {
    const till = await openTill(shop);
    sale = { till, buy: VARIANTS[variant]({ till, locks, shop }) };
  },

  async sell({ at, buyers, who }) {
    // Let the clock come close, then wait out the rest: all servers begin in the same millisecond.
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, at - Date.now() - 5)));
    while (Date.now() < at);
    const answers = Array.from({ length: buyers }, async (_, n) => {
      const asked = performance.now();
      const sold = await sale.buy(`${who}-${n}`);
      return { sold, waitMs: performance.now() - asked };
    });
    const told = await Promise.all(answers);
    await sale.till.close();
    return told;
  },

  async close() {
    await locks.close();
    process.disconnect();
  },
};

async function obey({ command, ...rest }) {
  try {
    const answer = await commands[command](rest);
    if (command !== "close") process.send({ answer: answer ?? null });
  } catch (error) {
    process.send({ error: error.stack ?? String(error) });
  }
}
process.on("message", (message) => void obey(message));
process.send({ answer: "ready" });
