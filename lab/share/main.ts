// npm run share -- [--seconds 30] [--at-once 2] [words]: other programs and ours count under one lock. Prints a table; exit code 1 when
// a sum is wrong. With words, only the pairs that have one of them in their names.
import { parseArgs } from "node:util";
import { install } from "../../test/servers/packages.js";
import { installPeers } from "../../test/servers/peers.js";
import { installNodeRedisson } from "../../test/servers/redisson.js";
import { PAIRS, type PairResult, runPairs } from "./pairs.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: "string", default: "30" }, "at-once": { type: "string", default: "2" } },
});
install(["Redis", "redis-py", "ZooKeeper", "Curator", "Kazoo"]);
await installPeers();
await installNodeRedisson();
const isAsked = ({ layout, program }: (typeof PAIRS)[number]): boolean =>
  positionals.length === 0 ||
  positionals.some((word) => `${layout} ${program}`.toLowerCase().includes(word.toLowerCase()));
console.log("| our layout | other program | ours | theirs | counted | seen inside | exact |");
console.log("| --- | --- | --: | --: | --: | --: | --- |");
const tell = ({ layout, program, ours, theirs, counted, wrong, exact }: PairResult): void =>
  console.log(`| ${[layout, program, ours, theirs, counted, wrong, exact ? "yes" : "NO"].join(" | ")} |`);
const ms = Number(values.seconds) * 1000;
const results = await runPairs(ms, Number(values["at-once"]), tell, PAIRS.filter(isAsked));
process.exitCode =
  results.length > 0 && results.every(({ exact, ours, theirs }) => exact && ours > 0 && theirs > 0) ? 0 : 1;
