import type { NameView } from "../wire.js";
import { h, type Row, Rows, scrolling, setText } from "./dom.js";
import type { Model } from "./model.js";
import { ageText, bdi, kindOf, kindText, lockHref, ownerText, useText, visible } from "./text.js";

const STEP = 200;
const LABELS_MAX = 200;

type Column = "name" | "kind" | "held" | "waiting" | "longest";

const COLUMNS: readonly (readonly [Column, string])[] = [
  ["name", "Name"],
  ["kind", "Kind"],
  ["held", "Held by"],
  ["waiting", "Waiting"],
  ["longest", "Longest wait"],
];

/** The names in use: search, filter, sort. */
export class NamesPage {
  readonly element: HTMLElement;
  readonly #model: Model;
  readonly #search = h("input", { type: "search", autocomplete: "off", name: "q", input: () => this.#again() });
  readonly #kind = h("select", { change: () => this.#again() });
  readonly #label = h("select", { change: () => this.#again() });
  readonly #caption = h("caption");
  readonly #heads = new Map<Column, HTMLElement>();
  readonly #rows: Rows<NameView>;
  readonly #more = h("button", { type: "button", click: () => this.#showMore() });
  #labels = "";
  #shown = STEP;
  #sort: Column = "longest";
  #down = true;

  constructor(model: Model) {
    this.#model = model;
    for (const kind of ["all", "mutex", "read-write", "semaphore"]) this.#kind.append(h("option", {}, kind));
    this.#rows = new Rows(
      COLUMNS.map(([, text]) => text),
      ({ name }) => name,
      ({ name }) => nameRow(name, model),
    );
    // What stood in the address, for browsers without scripts, stands here too.
    this.#search.value = new URLSearchParams(location.search).get("q") ?? "";
    const head = (text: string, at: number): HTMLElement => {
      const [column] = COLUMNS[at] as (typeof COLUMNS)[number];
      const button = h("button", { type: "button", click: () => this.#sortBy(column) }, text);
      this.#heads.set(column, button);
      return button;
    };
    this.element = h(
      "section",
      { "aria-label": "Names" },
      h(
        "form",
        { role: "search", submit: (event) => event.preventDefault() },
        h("label", {}, "Search ", this.#search),
        h("label", {}, "Kind ", this.#kind),
        h("label", {}, "Label ", this.#label),
      ),
      scrolling("Names in use", this.#rows.table(this.#caption, head)),
      h("p", {}, this.#more),
    );
  }

  update(): void {
    const all = [...this.#model.names.values()];
    this.#fillLabels(all);
    const found = this.#find(all);
    const sorted = this.#sorted(found);
    this.#rows.show(sorted.slice(0, this.#shown));
    setText(this.#caption, this.#captionText(found.length, all.length));
    const left = found.length - Math.min(this.#shown, found.length);
    this.#more.hidden = left === 0;
    setText(this.#more, `Show ${Math.min(STEP, left)} more of ${left}`);
    for (const [column, head] of this.#heads) {
      const cell = head.parentElement;
      if (column === this.#sort) cell?.setAttribute("aria-sort", this.#down ? "descending" : "ascending");
      else cell?.removeAttribute("aria-sort");
    }
  }

  #captionText(found: number, all: number): string {
    const { status, complete } = this.#model;
    if (!complete && all === 0) return "Reading the store …";
    const more = status?.more
      ? ` The store has more than the ${status.shown.toLocaleString("en")} names that were read.`
      : "";
    if (all === 0) return "Nothing is held.";
    const names = `${all.toLocaleString("en")} ${all === 1 ? "name" : "names"} in use`;
    return `${found === all ? names : `${found.toLocaleString("en")} of ${names}`}.${more}`;
  }

  /** Those that stand there; their number is bounded, as everybody can make more. */
  #fillLabels(all: readonly NameView[]): void {
    const labels = new Set<string>();
    for (const { holders, waiters } of all) {
      for (const { label } of [...holders, ...waiters])
        if (label !== undefined && labels.size < LABELS_MAX) labels.add(label);
    }
    const chosen = this.#label.value;
    if (chosen !== "") labels.add(chosen);
    const sorted = [...labels].toSorted();
    const text = JSON.stringify(sorted);
    if (text === this.#labels && this.#label.options.length > 0) return;
    this.#labels = text;
    this.#label.replaceChildren(
      h("option", { value: "" }, "all"),
      ...sorted.map((one) => h("option", { value: one }, visible(one))),
    );
    this.#label.value = chosen;
  }

  #find(all: readonly NameView[]): NameView[] {
    const search = this.#search.value.toLowerCase();
    const [kind, label] = [this.#kind.value, this.#label.value];
    return all.filter(
      (view) =>
        view.name.toLowerCase().includes(search) &&
        (kind === "all" || kindOf(view) === kind) &&
        (label === "" || [...view.holders, ...view.waiters].some((claim) => claim.label === label)),
    );
  }

  #sorted(views: NameView[]): NameView[] {
    const sign = this.#down ? -1 : 1;
    const values: Record<Column, (view: NameView) => string | number> = {
      name: ({ name }) => name,
      kind: ({ capacity }) => capacity,
      held: ({ holders: [first] }) => (first === undefined ? "" : ownerText(first)),
      waiting: ({ waiterCount }) => waiterCount,
      longest: ({ waitingSince }) => (waitingSince === null ? -Infinity : -waitingSince),
    };
    const value = values[this.#sort];
    return views.toSorted((a, b) => {
      const [one, two] = [value(a), value(b)];
      if (one === two) return a.name < b.name ? -1 : 1;
      return one < two ? -sign : sign;
    });
  }

  #sortBy(column: Column): void {
    this.#down = column === this.#sort ? !this.#down : column === "waiting" || column === "longest";
    this.#sort = column;
    this.update();
  }

  #again(): void {
    this.#shown = STEP;
    this.update();
  }

  #showMore(): void {
    this.#shown += STEP;
    this.update();
  }
}

function nameRow(name: string, model: Model): Row<NameView> {
  const [kind, held, waiting, longest] = [h("td"), h("td"), h("td", { class: "number" }), h("td", { class: "number" })];
  const holder = h("bdi");
  const others = h("span", { class: "dim" });
  held.append(holder, others);
  const link = h("a", { href: lockHref(name) }, bdi(name));
  return {
    element: h("tr", {}, h("th", { scope: "row" }, link), kind, held, waiting, longest),
    update(view) {
      const [first] = view.holders;
      setText(kind, kindText(view));
      setText(holder, first === undefined ? "–" : ownerText(first));
      setText(others, othersText(view));
      setText(waiting, String(view.waiterCount));
      setText(longest, view.waitingSince === null ? "–" : ageText(model.now() - view.waitingSince));
    },
  };
}

function othersText(view: NameView): string {
  const use = kindOf(view) === "mutex" ? "" : ` · ${useText(view)}`;
  return `${view.holderCount > 1 ? ` and ${view.holderCount - 1} more` : ""}${use}`;
}
