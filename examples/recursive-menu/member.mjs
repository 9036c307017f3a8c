// A restaurant's menu is a tree. Raising the prices of a menu raises those of its submenus, by the same function.
import { setTimeout as sleep } from "node:timers/promises";
import { readJson, writeJson } from "../lib/files.mjs";
import { die, noLock, open, serve, settings } from "../lib/member.mjs";

const { lock, path } = settings;
const locks = await open();
const menuLock = lock ? locks.mutex("example:menu") : noLock;

/**
 * Raises each dish of a menu and of all menus below it by 1. It can be called for any part of the tree, so it takes the
 * lock itself; called by itself it takes it again. With a lock that cannot be taken again it would wait for itself.
 */
const raise = (rise, place, failAt) =>
  menuLock.using(async () => {
    for (const name of Object.keys(find(readJson(path), place).menus)) await raise(rise, [...place, name], failAt);
    const tree = readJson(path);
    const menu = find(tree, place);
    await sleep(1);
    if (menu.name === failAt) die();
    // A lock is not a transaction: a rise may have died half way. What says which rise was there lets it be done again.
    for (const dish of menu.dishes.filter((dish) => !dish.rises.includes(rise))) {
      dish.price += 1;
      dish.rises.push(rise);
    }
    writeJson(path, tree);
  });

const find = (tree, place) => place.reduce((menu, name) => menu.menus[name], tree);

serve({
  raise: ({ rise, failAt }) => raise(rise, [], failAt),
  close: () => locks.close(),
});
