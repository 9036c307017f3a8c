import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Edit, writeBrokenCopy } from "../scripts/broken-copy.js";
import { ROOT } from "./lib/results.js";

/** Ways to break the library on purpose, so that the lab can show that it would notice: edits of its compiled files. */
const BROKEN: Readonly<Record<string, readonly Edit[]>> = {
  /** Every grant has the same token. */
  tokens: [
    ["core/grant.js", "return this.fence.token + this.client.settings.tokenBase;", "return 1;"],
    ["core/hold.js", "return this.#grant.fence.floor + this.#grant.client.settings.tokenBase;", "return 1;"],
  ],
  /** The deadline counts from the answer instead of the request. */
  deadline: [
    ["core/call.js", "this.answered(answer);", "this.sentAt = this.#caller.clock.now(); this.answered(answer);"],
  ],
  /** The memory store grants whatever it is asked for. */
  twice: [
    [
      "engines/memory/store.js",
      "const holds = name.waiters.first === null && fits(name, units);",
      "const holds = true;",
    ],
  ],
};

/** Below the project, so that it finds its client libraries. */
export function brokenLibrary(way: string): { readonly path: string; remove(): void } {
  const edits = Object.hasOwn(BROKEN, way) ? BROKEN[way] : undefined;
  if (edits === undefined) throw new Error(`there is no ${way}; choose from ${Object.keys(BROKEN).join(", ")}`);
  const path = mkdtempSync(join(ROOT, "node_modules", `.holdfast-broken-${way}-`));
  writeBrokenCopy(path, edits);
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}
