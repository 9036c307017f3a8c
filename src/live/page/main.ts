import type { Update } from "../wire.js";
import { Connection } from "./connection.js";
import { byId, h, setText } from "./dom.js";
import { GraphPage } from "./graph.js";
import { LockPage } from "./lock.js";
import { Model } from "./model.js";
import { NamesPage } from "./names.js";
import { StorePage } from "./store.js";
import { ageText, visible } from "./text.js";
import { TimelinePage } from "./timeline.js";

/** Ages and leases move on between two messages. */
const TICK_MS = 250;

type Page = { readonly element: HTMLElement; update(): void };

const PAGES = [
  ["names", "Names", (model: Model): Page => new NamesPage(model)],
  ["graph", "Graph", (model: Model): Page => new GraphPage(model)],
  ["timeline", "Timeline", (model: Model): Page => new TimelinePage(model)],
  ["store", "Store", (model: Model): Page => new StorePage(model)],
] as const;

const model = new Model();
const main = byId("main");
const links = PAGES.map(([id, text]) => h("a", { href: `#${id}` }, text));
let page: Page | null = null;
let shown = "";

const connection = new Connection(apply, () => draw());
byId("nav").replaceChildren(...links);
byId("nav").hidden = false;
addEventListener("hashchange", () => navigate(true));
navigate(false);
setInterval(draw, TICK_MS);

function apply(update: Update): void {
  const mayRelease = model.mayRelease;
  model.apply(update);
  // What a viewer may do decides which columns there are.
  if (model.mayRelease !== mayRelease) navigate(false, true);
  else if (update.set !== undefined || update.gone !== undefined || update.complete) draw();
}

/** By the part of the address behind `#`, which never leaves the browser. */
function navigate(byUser: boolean, anew = false): void {
  const hash = location.hash.slice(1);
  // The link that skips to the content.
  if (hash === "main" || (hash === shown && page !== null && !anew)) return;
  shown = hash;
  const name = /^lock\/(.+)$/s.exec(hash)?.[1];
  const found = PAGES.find(([id]) => id === hash) ?? PAGES[0];
  page = name === undefined ? found[2](model) : new LockPage(decode(name), model);
  const current = name === undefined ? found[0] : "names";
  links.forEach((link, at) => {
    if (PAGES[at]?.[0] === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  main.replaceChildren(page.element);
  draw();
  document.title = name === undefined ? `Locks: ${found[1]}` : `Locks: ${visible(decode(name))}`;
  if (byUser) main.focus();
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function draw(): void {
  if (document.hidden) return;
  page?.update();
  const [kind, text] = statusText();
  const status = byId("status");
  status.className = kind;
  setText(status, text);
}

/** Words that change only when something has changed: they are read aloud. */
function statusText(): readonly [kind: string, text: string] {
  const { status } = model;
  if (connection.link === "refused") return ["bad", "✕ No longer allowed to look, or too many do. Trying again."];
  if (connection.link === "lost") return ["bad", "✕ The program that serves this page does not answer. Trying again."];
  if (status === null) return ["", "Connecting …"];
  if (!status.answering)
    return ["bad", `✕ The store is not answering (${status.code ?? ""}): this is what was known last.`];
  const silentMs = performance.now() - connection.heardAt;
  if (silentMs > 3 * status.everyMs + 10_000) return ["bad", "✕ Nothing new was heard for a while."];
  const dead = model.deadlocks?.length ?? 0;
  if (dead > 0) return ["bad", `⚠ ${dead} ${dead === 1 ? "deadlock" : "deadlocks"}`];
  return ["good", `● Live, read every ${ageText(status.everyMs)}`];
}
