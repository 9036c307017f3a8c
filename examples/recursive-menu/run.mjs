// Three processes walk over one tree and change every node of it, by a function that calls itself and locks in each call.
// One dies half way. In the end each dish must have been raised once by each rise.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { readJson, writeJson } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";

const title = "recursive-menu: three processes raise all prices of a menu tree; one is killed half way";
const RISES = 4;

const menu = (name, dishes, ...menus) => ({
  name,
  dishes: dishes.map((dish) => ({ dish, price: 10, rises: [] })),
  menus: Object.fromEntries(menus.map((menu) => [menu.name, menu])),
});
const all = ({ dishes, menus }) => [...dishes, ...Object.values(menus).flatMap(all)];

await example(import.meta.url, { title }, async ({ fleet, folder }) => {
  const path = join(folder, "menu.json");
  const drinks = menu("drinks", ["water"], menu("hot", ["tea", "coffee"]), menu("cold", ["juice"]));
  writeJson(path, menu("all", ["bread"], menu("meals", ["soup", "stew"]), drinks));
  const [ann, bob, cy] = await fleet(3, { path });

  const rises = [];
  const raise = async (member, rise) => {
    rises.push(rise);
    await member.ask("raise", { rise });
  };
  const raiseOften = async (member) => {
    for (let n = 1; n <= RISES; n += 1) await raise(member, `${member.name} ${n}`);
  };
  const dying = async () => {
    await raise(bob, "bob 1");
    await bob.dies("raise", { rise: "bob 2", failAt: "drinks" });
    await raise(cy, "bob 2");
    say("cy", "did again what bob had begun");
  };
  await Promise.all([raiseOften(ann), raiseOften(cy), dying()]);
  say("", `${rises.length} rises were done`);

  return all(readJson(path))
    .filter(({ price }) => price !== 10 + rises.length)
    .map(({ dish, price }) => `${dish} costs ${price}, not ${10 + rises.length}`);
});
