// Debian's Chromium, driven by playwright-core, and axe-core to look for what keeps people out. Install them first: install.mjs.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

/** Names that lead to this machine, as those of whoever attacks it by DNS. */
const HOSTS = "--host-resolver-rules=MAP *.example 127.0.0.1";

/** No sandbox: as root, and in most containers, Chromium does not start with one. It only loads pages of this machine. */
export function launch(executablePath) {
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage", HOSTS] });
}

/** To be run in a page. */
export const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
