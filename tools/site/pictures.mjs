// Takes pictures of the built site, to be looked at: both languages, light and dark, wide and narrow.
//
//   npm run docs && node tools/site/pictures.mjs [folder]
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { install } from "../browser/install.mjs";
import { serveSite } from "./serve.mjs";

const OUT = process.argv[2] ?? join(import.meta.dirname, "out/pictures");
const WIDE = { width: 1280, height: 860 };
const TALL = { width: 1280, height: 1250 };
const NARROW = { width: 390, height: 844 };
/** @type {[file: string, path: string, scheme: "light" | "dark", viewport: { width: number, height: number }][]} */
const PICTURES = [
  ["home", "/", "light", WIDE],
  ["home-dark", "/", "dark", WIDE],
  ["home-zh", "/zh-CN/", "light", WIDE],
  ["eight-problems-dark", "/eight-problems", "dark", WIDE],
  ["eight-problems-zh", "/zh-CN/eight-problems", "light", WIDE],
  ["faults-dark", "/faults", "dark", WIDE],
  ["start-narrow", "/start", "light", NARROW],
  ["start-narrow-zh-dark", "/zh-CN/start", "dark", NARROW],
  ["playground", "/playground", "light", TALL],
  ["playground-dark", "/playground", "dark", TALL],
  ["playground-zh", "/zh-CN/playground", "light", TALL],
  ["playground-zh-narrow-dark", "/zh-CN/playground", "dark", { ...NARROW, height: 1800 }],
  ["not-translated", "/zh-CN/internals/proof", "light", WIDE],
];

install();
const { launch } = await import("../browser/drive.mjs");
mkdirSync(OUT, { recursive: true });
const { url, server } = await serveSite();
/** Busy, for the playground: A was paused past its lease, B holds, C waits, and A's late write went through. */
async function play(page, chinese) {
  const [take, pause, resume] = chinese ? ["加锁", "暂停", "恢复"] : ["Take", "Pause", "Resume"];
  const press = (client, name) => page.locator(`[data-client=${client}]`).getByRole("button", { name }).click();
  for (const client of ["A", "B", "C"]) await press(client, take);
  await page.locator(".fence input").click();
  await page.waitForTimeout(2_000);
  await press("A", pause);
  await page.waitForTimeout(7_500);
  await press("A", resume);
  await page.waitForTimeout(1_000);
}

const browser = await launch("/usr/bin/chromium");
for (const [file, path, colorScheme, viewport] of PICTURES) {
  const page = await browser.newPage({ colorScheme, viewport });
  page.setDefaultTimeout(120_000);
  await page.goto(url + path);
  if (path.endsWith("playground")) await play(page, path.includes("zh-CN"));
  await page.screenshot({ path: join(OUT, `${file}.png`) });
  await page.close();
}
await browser.close();
server.close();
server.closeAllConnections();
