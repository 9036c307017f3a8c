import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { programsOf } from "./packages.js";

/** What the tests use of playwright-core, whose types are not installed where the library's are. */
export type Page = {
  goto(url: string): Promise<{ status(): number } | null>;
  locator(selector: string): Found;
  getByRole(role: string, options?: { name?: string | RegExp; exact?: boolean }): Found;
  getByLabel(text: string): Found;
  evaluate<Result, Given = undefined>(run: string | ((given: Given) => Result), given?: Given): Promise<Result>;
  on(
    event: "pageerror" | "console",
    listener: (told: { message: string; type(): string; text(): string }) => void,
  ): void;
  setDefaultTimeout(ms: number): void;
  setViewportSize(size: { width: number; height: number }): Promise<void>;
  emulateMedia(media: { colorScheme: "light" | "dark" }): Promise<void>;
  screenshot(options: { path: string; fullPage?: boolean }): Promise<unknown>;
  content(): Promise<string>;
  close(): Promise<void>;
  readonly keyboard: { press(key: string): Promise<void>; type(text: string): Promise<void> };
};

type Found = {
  getByRole(role: string, options?: { name?: string | RegExp; exact?: boolean }): Found;
  click(): Promise<void>;
  fill(text: string): Promise<void>;
  selectOption(value: string): Promise<unknown>;
  count(): Promise<number>;
  first(): Found;
  innerText(): Promise<string>;
  textContent(): Promise<string | null>;
  allTextContents(): Promise<string[]>;
  waitFor(options?: { state?: "visible" | "hidden" | "attached" | "detached" }): Promise<void>;
  isVisible(): Promise<boolean>;
  isDisabled(): Promise<boolean>;
};

export type Browser = {
  newPage(options?: object): Promise<Page>;
  close(): Promise<void>;
};

type Driver = { readonly launch: (path: string) => Promise<Browser>; readonly axe: string };

const FOLDER = resolve(import.meta.dirname, "../../tools/browser");
const load = (file: string): Promise<unknown> => import(pathToFileURL(join(FOLDER, file)).href);

/** A browser, and what checks its pages. It is there: `install-first.ts` saw to it before the run. */
export async function openBrowser(): Promise<{ browser: Browser; axe: string }> {
  const { launch, axe } = (await load("drive.mjs")) as Driver;
  return { browser: await launch(programsOf("Chromium").chromium ?? ""), axe };
}

export async function installBrowserDriver(): Promise<void> {
  ((await load("install.mjs")) as { install(): void }).install();
}
