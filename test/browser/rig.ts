import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { connect, type Locks } from "../../dist/index.js";
import { forNode, type LiveView, type LiveViewOptions, liveView } from "../../dist/live/index.js";
import type { Browser, Page } from "../servers/browser.js";
import { until } from "../servers/process.js";

export type Site = { readonly url: string; readonly view: LiveView; readonly locks: Locks; readonly server: Server };

/** A live view of a store, on a port of its own. */
export async function serve(storeUrl: string, options: LiveViewOptions = {}): Promise<Site> {
  const locks = await connect(storeUrl, { label: "the view" });
  const view = liveView(locks, { everyMs: 100, ...options });
  const server = createServer(forNode(view));
  const port = await listen(server);
  onTestFinished(async () => {
    view.close();
    server.closeAllConnections();
    server.close();
    await locks.close();
  });
  return { url: `http://127.0.0.1:${port}/`, view, locks, server };
}

export function listen(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port));
  });
}

/** A client of the store under test, closed with the test. */
export async function client(storeUrl: string, label: string, options: object = {}): Promise<Locks> {
  const locks = await connect(storeUrl, { label, ...options });
  onTestFinished(() => locks.close());
  return locks;
}

/** A page whose errors, refused code among them, fail the test. */
export async function open(browser: Browser, url: string, options: object = {}): Promise<Page> {
  const page = await browser.newPage(options);
  page.setDefaultTimeout(60_000);
  const errors: string[] = [];
  page.on("pageerror", ({ message }) => errors.push(message));
  page.on("console", (told) => {
    // A connection that the test cuts is told by the browser itself.
    if (told.type() === "error" && !/ERR_|Failed to load resource/.test(told.text())) errors.push(told.text());
  });
  onTestFinished(async () => {
    await page.close();
    if (errors.length > 0) throw new Error(`the page failed: ${errors.join("; ")}`);
  });
  await page.goto(url);
  return page;
}

/** Goes to one of its views, as its links do. */
export async function to(page: Page, hash: string): Promise<void> {
  await page.evaluate((next) => {
    location.hash = next;
  }, hash);
}

declare const location: { hash: string };

/** Until an expression is true in the page. Asked from outside: the page's policy lets nobody evaluate text inside. */
export async function holds(page: Page, expression: string): Promise<void> {
  await until(expression, async () => page.evaluate<boolean>(expression), 60_000);
}

/** Until the page shows this, in the part that a selector names. */
export async function shows(page: Page, selector: string, text: string): Promise<void> {
  const [where, what] = [JSON.stringify(selector), JSON.stringify(text)];
  await holds(page, `Array.from(document.querySelectorAll(${where})).some((one) => one.textContent.includes(${what}))`);
}
