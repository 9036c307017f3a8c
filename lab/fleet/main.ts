// npm run fleet -- [--seconds 30] [--old commit] [store ...]: processes of two versions share each store; then versions of invented
// layouts come. Prints tables; exit code 1 after a violation.
import { rmSync } from "node:fs";
import { parseArgs } from "node:util";
import { install } from "../../test/servers/packages.js";
import { PLACES } from "../../test/servers/places.js";
import { markdownTable } from "../lib/table.js";
import { type FleetResult, runFleet } from "./fleet.js";
import { folderForPackages, invented, oldestOfThisLayout, packageOf, present, unversioned } from "./packages.js";
import { type Refusal, refusalOf, upgrade } from "./upgrade.js";

const { values, positionals } = parseArgs({
  options: { seconds: { type: "string", default: "30" }, old: { type: "string" } },
  allowPositionals: true,
});
install(["Redis", "PostgreSQL", "MariaDB", "etcd", "ZooKeeper"]);
const older = packageOf(values.old ?? oldestOfThisLayout());
const before = packageOf(unversioned());
const newer = present();
const folder = folderForPackages();
const [next, afterNext] = [invented(1, folder), invented(2, folder)];
const stores = positionals.length > 0 ? positionals : Object.keys(PLACES);
const results: FleetResult[] = [];
const texts: string[] = [];
console.log(`Two processes of ${older.title} and two of the ${newer.title}, ${values.seconds} s on each store.\n`);
const say = (store: string, refusals: readonly Refusal[]): void => {
  for (const { who, reads } of refusals) texts.push(`${store}, ${who}:\n    ${reads}`);
};
try {
  for (const store of stores) {
    const place = await PLACES[store]?.();
    if (place === undefined) throw new Error(`"${store}" is none of ${Object.keys(PLACES).join(", ")}`);
    try {
      results.push(await runFleet(store, place, [older, newer], Number(values.seconds) * 1000));
      const reads = await refusalOf(before, place);
      say(store, [
        {
          who: `0.1.0 (${before.title}), on a store of the present one`,
          reads: reads ?? "let in: it asks for no version there",
        },
      ]);
      say(store, await upgrade(place, newer, next, afterNext));
    } finally {
      await place.stop();
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
const rows = results.map(({ store, holds, handOvers, continued, added, lost, violations }) => [
  store,
  holds[0],
  holds[1],
  handOvers[1],
  handOvers[0],
  continued === null ? "-" : `${continued[1]} + ${continued[0]}`,
  added === null ? "-" : `${added[1]} of ${added[0]}`,
  lost,
  violations.length,
]);
const head = [
  "store",
  "holds, old",
  "holds, new",
  "old to new",
  "new to old",
  "continued",
  "counted",
  "lost",
  "violations",
];
console.log(markdownTable(head, rows, [1, 2, 3, 4, 5, 6, 7, 8]));
console.log(`\nWhat the refused ones read:\n\n${texts.join("\n")}`);
for (const { store, violations } of results) for (const one of violations) console.log(`${store}: ${one}`);
const wrong = results.some(
  ({ violations, handOvers, added }) =>
    violations.length > 0 || handOvers.includes(0) || (added !== null && added[0] !== added[1]),
);
process.exit(wrong ? 1 : 0);
