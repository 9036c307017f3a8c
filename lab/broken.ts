import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./lib/results.js";

/** Ways to break the library on purpose, so that the lab can show that it would notice: edits of the built files. */
const BROKEN: Readonly<Record<string, readonly (readonly [file: string, from: string, to: string])[]>> = {
  /** Every grant has the same token. */
  tokens: [
    ["core/grant.js", "return this.#fence.token + this.client.settings.tokenBase;", "return 1;"],
    ["core/hold.js", "return this.#grant.fence.floor + this.#grant.client.settings.tokenBase;", "return 1;"],
  ],
  /** The deadline counts from the answer instead of the request. */
  deadline: [["core/client.js", "call()), sentAt, tries };", "call()), sentAt: this.clock.now(), tries };"]],
};

/** A copy of the built library with something broken; below the project, so that it finds its client libraries. */
export function brokenLibrary(way: string): { readonly path: string; remove(): void } {
  const edits = Object.hasOwn(BROKEN, way) ? BROKEN[way] : undefined;
  if (edits === undefined) throw new Error(`there is no ${way}; choose from ${Object.keys(BROKEN).join(", ")}`);
  const path = mkdtempSync(join(ROOT, "node_modules", `.holdfast-broken-${way}-`));
  cpSync(join(ROOT, "dist"), path, { recursive: true, filter: (file) => !/\.(map|d\.ts)$/.test(file) });
  writeFileSync(join(path, "package.json"), '{ "type": "module" }');
  for (const [file, from, to] of edits) {
    const code = readFileSync(join(path, file), "utf8");
    if (code.split(from).length !== 2) throw new Error(`"${from}" does not occur once in ${file}`);
    writeFileSync(
      join(path, file),
      code.replace(from, () => to),
    );
  }
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}
