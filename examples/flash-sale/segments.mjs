// The stock in segments, each with a lock of its own. With one segment it is the plain way: one lock for everything.
export const segmented =
  (count) =>
  ({ till, locks }) => {
    const stock = locks.striped(`example:stock of ${count}`, count);
    return async (buyer) => {
      // What is empty stays empty: nobody needs a lock to be sure of that.
      let filled = await till.inStock();
      // The buyer's own segment first, by the hash of his name; then the next ones.
      for (const { index, lock } of stock.walk(buyer)) {
        if (!filled.has(index)) continue;
        if (await lock.using(() => till.readAndWrite(buyer, index))) return true;
        filled = await till.inStock(); // others were faster here: where else, after all this waiting?
      }
      return false;
    };
  };
