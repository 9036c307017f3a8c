// One of the web servers: a request reads the user's session, changes it and writes it back.

import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readJson, writeJson } from "../lib/files.mjs";
import { die, noLock, open, serve, settings } from "../lib/member.mjs";

const { lock, folder } = settings;
const locks = await open();

/** One lock for each user: users do not wait for each other. */
const lockOf = (user) => (lock ? locks.mutex(`example:session:${user}`) : noLock);

const addToCart = ({ user, item, fail }) =>
  lockOf(user).using(async () => {
    const path = join(folder, `${user}.json`);
    const session = readJson(path, { cart: [] });
    await sleep(3); // prices, discounts, ...
    if (fail) die();
    // The same request may come twice: its first answer can get lost with the server.
    if (!session.cart.includes(item)) session.cart.push(item);
    writeJson(path, session);
  });

serve({ addToCart, close: () => locks.close() });
