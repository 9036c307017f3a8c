import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import type { NativeZooKeeper } from "../../src/engines/zookeeper/index.js";

const FOLDER = resolve(import.meta.dirname, "../clients/zookeeper");

/** The package `zookeeper`, compiled on first use in a folder of its own: nobody else who installs this project needs it. */
export function nativeZooKeeper(): NativeZooKeeper {
  if (!existsSync(join(FOLDER, "node_modules/zookeeper/build/Release"))) {
    execFileSync("npm", ["ci", "--no-audit", "--no-fund"], { cwd: FOLDER, stdio: ["ignore", "ignore", "inherit"] });
  }
  return createRequire(join(FOLDER, "package.json"))("zookeeper") as NativeZooKeeper;
}
