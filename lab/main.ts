import { parseArgs } from "node:util";
import { install } from "../test/servers/packages.js";
import { progress } from "./lib/progress.js";
import { choose, play } from "./matrix.js";
import { ROOT } from "./lib/results.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: "string", default: "1" }, repeat: { type: "string", default: "1" }, only: { type: "string", multiple: true, default: [] } },
});
const { engines, faults } = choose([...positionals, ...values.only.flatMap((text) => text.split(","))]);
install(["Redis", "PostgreSQL", "MariaDB", "etcd", "ZooKeeper", "GCC"]);
const played = await play({
  engines, faults, library: `${ROOT}/dist`, seed: Number(values.seed), repeat: Number(values.repeat),
  started: (engine, fault) => progress(`${engine.title}: ${fault.title}`),
  ended: ({ cell: { engine, fault, outcome, ok, wrong, tookMs, findings } }) => {
    console.log(`${ok ? "ok " : "NO "} ${engine} ${fault}: ${outcome} ${(tookMs / 1000).toFixed(1)} s  told ${findings?.toldAfterDeadlineMs?.toFixed(0)} / ${findings?.toldAfterNextGrantMs?.toFixed(0)}, others ${findings?.othersWentOnMs?.toFixed(0)}, unfenced ${findings?.unfencedStale}, fenced ${findings?.fencedRefused}/${findings?.fencedStale}`);
    for (const line of wrong) console.log(`      ${line}`);
  },
});
process.exitCode = played.every(({ cell }) => cell.ok) ? 0 : 1;
