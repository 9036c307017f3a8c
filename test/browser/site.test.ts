import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Browser, openBrowser, type Page } from "../servers/browser.js";
import { type BuiltSite, builtSite } from "../servers/site.js";
import { open, shows } from "./rig.js";

let browser: Browser;
let axe: string;
let site: BuiltSite;

beforeAll(async () => {
  ({ browser, axe } = await openBrowser());
  site = await builtSite();
}, 600_000);
afterAll(async () => {
  await browser?.close();
  site?.server.closeAllConnections();
  site?.server.close();
});

describe("the site", () => {
  test.each([
    ["/", "First steps", "en"],
    ["/zh-CN/", "入门", "zh-CN"],
    ["/eight-problems", "The eight problems", "en"],
    ["/zh-CN/eight-problems", "八个问题", "zh-CN"],
  ])("%s is there, in its language", async (path, text, lang) => {
    const page = await open(browser, site.url + path);
    await shows(page, "#VPContent, .VPSidebar", text);
    expect(await page.evaluate("document.documentElement.lang")).toBe(lang);
  });

  test.each([
    ["/start", "Search", "watchdog", "/redisson-curator"],
    ["/zh-CN/start", "搜索", "看门狗", "/zh-CN/"],
  ])("%s: a search finds pages of the language", async (path, button, words, found) => {
    const page = await open(browser, site.url + path);
    await page.getByRole("button", { name: button }).first().click();
    await page.locator(".search-input").fill(words);
    await page.locator(`.results a[href^="${found}"]`).first().waitFor();
  });

  test("a page that is not translated leads to the English one", async () => {
    const page = await open(browser, `${site.url}/zh-CN/internals/proof`);
    await page.locator(".not-found a").click();
    await shows(page, "h1", "How it is proved");
  });

  test("llms.txt lists pages, each of which can be read as it was written", async () => {
    const list = await (await fetch(`${site.url}/llms.txt`)).text();
    const pages = [...list.matchAll(/\]\((\/[^)]+\.md)\)/g)].map(([, page = ""]) => page);
    expect(pages.length).toBeGreaterThan(40);
    for (const page of pages) expect((await (await fetch(site.url + page)).text()).slice(0, 2), page).toBe("# ");
  });
});

describe("the playground", () => {
  const words = {
    "/playground": { take: "Take", release: "Release", pause: "Pause", resume: "Resume", crash: "Crash" },
    "/zh-CN/playground": { take: "加锁", release: "释放", pause: "暂停", resume: "恢复", crash: "崩溃" },
  };
  const card = (client: string): string => `[data-client=${client}]`;
  const press = (page: Page, client: string, name: string): Promise<void> =>
    page.locator(card(client)).getByRole("button", { name, exact: true }).click();
  const holding = (page: Page, client: string, token: number): Promise<void> =>
    shows(page, `${card(client)}.holding .state`, String(token));
  /** Until the worker has written so often with this token. */
  const written = (page: Page, kind: string, who: string, token: number): Promise<void> =>
    shows(page, `.writes .${kind}`, who).then(() => shows(page, `.writes .${kind}`, String(token)));

  test.each(Object.entries(words))("%s: take, wait, hand over", async (path, { take, release }) => {
    const page = await open(browser, site.url + path);
    await press(page, "A", take);
    await holding(page, "A", 1);
    await press(page, "B", take);
    await shows(page, ".queue li:nth-child(2)", "B");
    await press(page, "C", take);
    await shows(page, ".queue li:nth-child(3)", "C");
    await written(page, "written", "A", 1);
    await press(page, "A", release);
    await holding(page, "B", 2);
    await press(page, "B", release);
    await holding(page, "C", 3);
    // Each hand-over is a bar.
    await shows(page, ".timeline svg", "C");
    expect(await page.locator(".timeline rect").count()).toBe(3);
  });

  test("by keyboard alone", async () => {
    const page = await open(browser, `${site.url}/playground`);
    await page.locator(card("A")).waitFor();
    const focused = (): Promise<string> => page.evaluate("document.activeElement.textContent.trim()");
    for (let tabs = 0; tabs < 150 && (await focused()) !== "Take"; tabs += 1) await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await holding(page, "A", 1);
    // The button says now what it does next, and keeps the focus.
    expect(await focused()).toBe("Release");
    await page.keyboard.press("Enter");
    await shows(page, ".queue, .two", "nobody holds");
  });

  /** A holds and is about to write, B waits; A stands still until B has written. */
  async function pausePastLease(page: Page, { take, pause, resume }: (typeof words)["/playground"]): Promise<void> {
    await press(page, "A", take);
    await holding(page, "A", 1);
    await press(page, "B", take);
    await shows(page, ".queue li:nth-child(2)", "B");
    await press(page, "A", pause);
    await holding(page, "B", 2);
    await written(page, "written", "B", 2);
    await press(page, "A", resume);
  }

  test.each(Object.entries(words))(
    "%s: paused past the lease, the holder is told, and the fence refuses its late write",
    async (path, said) => {
      const page = await open(browser, site.url + path);
      await pausePastLease(page, said);
      await written(page, "refused", "A", 1);
      await page.locator(`${card("A")} .told`).waitFor();
      expect(await page.locator(".writes .stale").count()).toBe(0);
      await holding(page, "B", 2);
    },
  );

  test("without the fence the late write goes through", async () => {
    const page = await open(browser, `${site.url}/playground`);
    await page.locator(".fence input").click();
    await pausePastLease(page, words["/playground"]);
    await written(page, "stale", "A", 1);
    await page.locator(`${card("A")} .told`).waitFor();
    expect(await page.locator(".writes .refused").count()).toBe(0);
  });

  test("a lock whose holder crashed passes on when its lease has ended", async () => {
    const page = await open(browser, `${site.url}/playground`);
    await press(page, "A", "Take");
    await holding(page, "A", 1);
    await press(page, "B", "Take");
    await press(page, "A", "Crash");
    await shows(page, `${card("A")}.crashed`, "Restart");
    await holding(page, "B", 2);
    await press(page, "A", "Restart");
    await press(page, "A", "Take");
    await shows(page, ".queue li:nth-child(2)", "A");
  });

  test("a holder whose heartbeats are answered too late is told", async () => {
    const page = await open(browser, `${site.url}/playground`);
    await press(page, "A", "Take");
    await holding(page, "A", 1);
    await page.locator(`${card("A")} select`).selectOption("3000");
    await page.locator(`${card("A")} .told`).waitFor();
  });

  test.each([
    ["light", 1280],
    ["dark", 1280],
    ["light", 390],
    ["dark", 390],
  ] as const)("axe-core finds nothing wrong in it: %s, %i px wide", async (colorScheme, width) => {
    const page = await open(browser, `${site.url}/zh-CN/playground`, { colorScheme, viewport: { width, height: 900 } });
    await press(page, "A", "加锁");
    await holding(page, "A", 1);
    await written(page, "written", "A", 1);
    await page.evaluate(axe);
    type Found = { violations: { id: string; nodes: { html: string }[] }[] };
    const { violations } = await page.evaluate<Found>('axe.run(".playground")');
    expect(violations.map(({ id, nodes }) => [id, nodes[0]?.html])).toEqual([]);
    expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
  });
});
