import type { ClaimView, HolderView, NameView, WaiterView } from "../wire.js";
import { askRelease } from "./dialog.js";
import { h, type Row, Rows, scrolling, setText } from "./dom.js";
import type { Model } from "./model.js";
import { ageText, bdi, kindOf, kindText, ownerText, shortOwner, sinceText, unitsText, useText } from "./text.js";
import { Bands } from "./timeline.js";

type Placed = WaiterView & { readonly place: number };

/** One name: who holds it, who waits, and how it went from hand to hand. */
export class LockPage {
  readonly element: HTMLElement;
  readonly #name: string;
  readonly #model: Model;
  readonly #facts = h("p", { class: "facts" });
  readonly #meter = h("div", { class: "meter", hidden: true }, h("span"));
  readonly #holders: Rows<HolderView>;
  readonly #waiters: Rows<Placed>;
  readonly #held = h("caption");
  readonly #waiting = h("caption");
  readonly #bands: Bands;
  /** As it was seen last: a name that is free has no state. */
  #view: NameView;

  constructor(name: string, model: Model) {
    this.#name = name;
    this.#model = model;
    this.#bands = new Bands(model);
    this.#view = model.names.get(name) ?? nothing(name);
    const actions = model.mayRelease ? ["Action"] : [];
    const held = ["Who", "Units", "Token", "Held for", "Lease", ...actions];
    this.#holders = new Rows<HolderView>(held, keyOf, (holder) => this.#holderRow(holder));
    const waiting = ["Place", "Who", "Units", "Waiting for"];
    this.#waiters = new Rows<Placed>(waiting, keyOf, (waiter) => this.#waiterRow(waiter));
    this.element = h(
      "section",
      { "aria-labelledby": "lock-title" },
      h("p", {}, h("a", { href: "#names" }, "← All names")),
      h("h2", { id: "lock-title" }, bdi(name)),
      this.#facts,
      this.#meter,
      scrolling("Holders", this.#holders.table(this.#held)),
      scrolling("Waiters", this.#waiters.table(this.#waiting)),
      h("h3", {}, "Who held it since this page was opened"),
      this.#bands.element,
    );
  }

  update(): void {
    const view = this.#model.names.get(this.#name) ?? nothing(this.#name);
    this.#view = view;
    const free = view.holderCount + view.waiterCount === 0;
    setText(
      this.#facts,
      free ? this.#freeText() : `${kindText(view)} · ${useText(view)} · last token ${view.lastToken}`,
    );
    const isSemaphore = kindOf(view) === "semaphore";
    this.#meter.hidden = !isSemaphore || free;
    const inside = this.#meter.firstElementChild as HTMLElement;
    inside.style.width = `${Math.min(100, (100 * view.used) / Math.max(1, view.capacity))}%`;
    setText(this.#held, countText("Held by", view.holderCount, view.holders.length, "nobody"));
    setText(this.#waiting, countText("Waiting", view.waiterCount, view.waiters.length, "nobody"));
    this.#holders.show(view.holders);
    this.#waiters.show(view.waiters.map((waiter, at) => ({ ...waiter, place: at + 1 })));
    this.#bands.show([this.#name]);
  }

  #freeText(): string {
    return this.#model.complete ? "It is free: nobody holds it and nobody waits." : "Reading the store …";
  }

  #holderRow(holder: HolderView): Row<HolderView> {
    const [units, token, age] = [h("td"), h("td", { class: "number" }), h("td", { class: "number" })];
    const lease = new LeaseCell();
    const take = (): void => askRelease(this.#name, holder);
    const label = `Take away from ${shortOwner(holder)}`;
    const button = h("button", { type: "button", class: "danger", "aria-label": label, click: take }, "Take away");
    const action = this.#model.mayRelease ? h("td", {}, button) : null;
    return {
      element: h("tr", {}, whoCell(holder), units, token, age, lease.element, action),
      update: (one) => {
        setText(units, unitsText(this.#view, one.units));
        setText(token, String(one.token));
        setText(age, sinceText(one, this.#model.now()));
        lease.show(this.#model, one.key);
      },
    };
  }

  #waiterRow(waiter: WaiterView): Row<Placed> {
    const [place, units, age] = [h("td", { class: "number" }), h("td"), h("td", { class: "number" })];
    return {
      element: h("tr", {}, place, whoCell(waiter), units, age),
      update: (one) => {
        setText(place, `${one.place}.`);
        setText(units, unitsText(this.#view, one.units));
        setText(age, sinceText(one, this.#model.now()));
      },
    };
  }
}

const keyOf = ({ key }: ClaimView): string => String(key);
const nothing = (name: string): NameView => ({
  ...{ name, capacity: 1, used: 0, lastToken: 0, holders: [], waiters: [], holderCount: 0, waiterCount: 0 },
  waitingSince: null,
});

function countText(word: string, count: number, shown: number, none: string): string {
  if (count === 0) return `${word}: ${none}`;
  return `${word}: ${count}${shown < count ? `, of which the first ${shown} are shown` : ""}`;
}

function whoCell(claim: ClaimView): HTMLElement {
  const { label, host, pid } = claim;
  if (label === undefined || label === "") return h("th", { scope: "row" }, bdi(`${host}:${pid}`));
  const place = h("span", { class: "dim" }, " ", bdi(`${host}:${pid}`));
  return h("th", { scope: "row", title: ownerText(claim) }, bdi(label), place);
}

/** What is left of the lease, as a bar that drains and in words. */
class LeaseCell {
  readonly #inside = h("span");
  readonly #bar = h("div", { class: "bar", "aria-hidden": "true" }, this.#inside);
  readonly #text = h("span");
  readonly element = h("td", { class: "lease" }, this.#bar, this.#text);

  show(model: Model, key: number): void {
    const { until, leaseMs } = model.leaseOf(key) ?? { until: null, leaseMs: null };
    this.#bar.hidden = until === null || leaseMs === null;
    if (until === null || leaseMs === null) return setText(this.#text, "ends with its session");
    const leftMs = Math.max(0, until - model.now());
    // As a holder is told itself: two thirds passed and no heartbeat was confirmed.
    const jeopardy = leftMs < leaseMs / 3;
    this.#inside.style.width = `${Math.min(100, (100 * leftMs) / Math.max(1, leaseMs))}%`;
    this.element.classList.toggle("jeopardy", jeopardy);
    const state = leftMs === 0 ? "ended" : jeopardy ? `⚠ ${ageText(leftMs)}, not renewed in time` : ageText(leftMs);
    setText(this.#text, `${state}${leftMs === 0 || jeopardy ? "" : " left"}`);
  }
}
