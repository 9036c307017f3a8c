import { existsSync, readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Reporter, TestSpecification } from "vitest/node";
import { installBrowserDriver } from "./browser.js";
import { installOpenTelemetry } from "./otel.js";
import { install, isServer } from "./packages.js";
import { installPeers } from "./peers.js";
import { installNodeRedisson } from "./redisson.js";
import { installSite } from "./site.js";
import { installTool, isTool } from "./tools.js";
import { installWebFrameworks } from "./web-frameworks.js";

/**
 * Installs what the chosen test files need, once, before the first of them starts: inside a test the same would be
 * done by several workers at a time and run into the hook's time limit. A reporter, because only reporters are told
 * which files were chosen.
 */
export default class InstallFirst implements Reporter {
  async onTestRunStart(files: readonly TestSpecification[]): Promise<void> {
    const sources = [...sourcesOf(files.map((file) => file.moduleId))];
    const named = sources.flatMap((text) => [...text.matchAll(/programsOf\(\s*"([^"]+)"/g)]);
    install([...new Set(named.map(([, name = ""]) => name))].filter(isServer));
    const tools = sources.flatMap((text) => [...text.matchAll(/(?:folderOf|toolModule)\(\s*"([^"]+)"/g)]);
    for (const tool of new Set(tools.map(([, name = ""]) => name))) if (isTool(tool)) await installTool(tool);
    if (sources.some((text) => text.includes("await openTelemetry()"))) await installOpenTelemetry();
    if (sources.some((text) => text.includes("await peers()"))) await installPeers();
    if (sources.some((text) => text.includes("await nodeRedisson()"))) await installNodeRedisson();
    if (sources.some((text) => text.includes("await openBrowser()"))) await installBrowserDriver();
    if (sources.some((text) => text.includes("await builtSite()"))) await installSite();
    if (sources.some((text) => text.includes("await webServers()"))) await installWebFrameworks();
  }
}

/** The text of these files and of all that they import from this project. */
function* sourcesOf(files: readonly string[]): Iterable<string> {
  const seen = new Set<string>();
  const left = [...files];
  for (let file = left.pop(); file !== undefined; file = left.pop()) {
    if (seen.has(file) || !existsSync(file)) continue;
    seen.add(file);
    const text = readFileSync(file, "utf8");
    for (const [, path = ""] of text.matchAll(/from "(\.[^"]+)\.js"/g)) left.push(resolve(dirname(file), `${path}.ts`));
    yield text;
  }
}
