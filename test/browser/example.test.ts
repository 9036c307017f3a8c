import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Browser, openBrowser, type Page } from "../servers/browser.js";
import { holds, open, shows } from "./rig.js";

let browser: Browser;
beforeAll(async () => {
  ({ browser } = await openBrowser());
}, 180_000);
afterAll(() => browser?.close());

/** Its address, and the password of each user, as it prints them. */
async function start(): Promise<{ url: string; passwords: Map<string, string>; end: () => Promise<number | null> }> {
  const program = resolve(import.meta.dirname, "../../examples/run.mjs");
  const child = spawn(process.execPath, [program, "live-view"], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) if (lines.push(line) === 3) break;
  const passwords = new Map(lines.slice(1).map((line) => line.split(" ") as [string, string]));
  const end = async (): Promise<number | null> => {
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    return (await ended)[0] as number | null;
  };
  return { url: lines[0] ?? "", passwords, end };
}

async function logIn(page: Page, user: string, password: string): Promise<void> {
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
}

test("the example in Express: nobody looks without a log-in, and only the operator takes locks away", async () => {
  const { url, passwords, end } = await start();
  const locks = new URL("/admin/locks/", url);
  expect((await fetch(locks, { redirect: "manual" })).status).toBe(303);
  expect((await fetch(new URL("release?name=a&token=1", locks), { method: "POST" })).status).toBe(403);
  const forged = { cookie: "session=operator.AAAA" };
  expect((await fetch(locks, { headers: forged, redirect: "manual" })).status).toBe(303);

  const viewer = await open(browser, locks.href);
  await logIn(viewer, "viewer", "");
  await shows(viewer, "p", "That is wrong");
  await logIn(viewer, "viewer", passwords.get("viewer") ?? "");
  await shows(viewer, "tbody tr", "example:stock");
  await viewer.getByRole("link", { name: "example:stock", exact: true }).click();
  await shows(viewer, "h2", "example:stock");
  expect(await viewer.getByRole("button", { name: /Take/ }).count()).toBe(0);
  await viewer.close();

  // Another browser, without the first one's cookies.
  const operator = await open(browser, url);
  await logIn(operator, "operator", passwords.get("operator") ?? "");
  await shows(operator, "tbody tr", "example:stock");
  await operator.getByRole("link", { name: "example:stock", exact: true }).click();
  await holds(operator, `document.querySelector("button.danger") !== null`);
  await operator.locator("button.danger").first().click();
  await operator.getByRole("button", { name: "Take it away", exact: true }).click();
  // Its holder may have given it back a moment before: both are answers.
  await holds(operator, `/taken away|given back/.test(document.querySelector("dialog").textContent)`);
  expect(await end()).toBe(0);
});
