/** Makes elements. Text that others chose goes in as text: nothing here reads markup. */

type Child = Node | string | null | undefined | false;
type Attributes = Readonly<Record<string, string | number | boolean | null | undefined | ((event: Event) => void)>>;

export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[Tag] {
  return fill(document.createElement(tag), attributes, children);
}

export function s<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[Tag] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill<Made extends Element>(element: Made, attributes: Attributes, children: readonly Child[]): Made {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

/** Only when it differs: screen readers and selections notice a text that is set. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** The element with this id: the page was sent with it. */
export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`no #${id}`);
  return found;
}

/**
 * A table whose rows stay the same elements while their keys do, so that nobody loses the focus. On a narrow screen each row is a card,
 * for which its cells say their column; the roles say what layout would otherwise take away.
 */
export class Rows<Item> {
  readonly body = h("tbody", { role: "rowgroup" });
  readonly #columns: readonly string[];
  readonly #key: (item: Item) => string;
  readonly #make: (item: Item) => Row<Item>;
  #rows = new Map<string, Row<Item>>();

  constructor(columns: readonly string[], key: (item: Item) => string, make: (item: Item) => Row<Item>) {
    this.#columns = columns;
    this.#key = key;
    this.#make = make;
  }

  /** The whole table. `head` makes what stands in a column's head. */
  table(caption: HTMLElement, head: (column: string, at: number) => Child = (column) => column): HTMLElement {
    const heads = this.#columns.map((column, at) => h("th", { scope: "col", role: "columnheader" }, head(column, at)));
    const top = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...heads));
    return h("table", { class: "cards", role: "table" }, caption, top, this.body);
  }

  #new(item: Item): Row<Item> {
    const row = this.#make(item);
    row.element.setAttribute("role", "row");
    Array.from(row.element.children).forEach((cell, at) => {
      cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
      cell.setAttribute("data-column", this.#columns[at] ?? "");
    });
    return row;
  }

  show(items: readonly Item[]): void {
    const focused = document.activeElement;
    const before = this.#rows;
    this.#rows = new Map();
    let at = this.body.firstElementChild;
    for (const item of items) {
      const key = this.#key(item);
      const row = before.get(key) ?? this.#new(item);
      before.delete(key);
      this.#rows.set(key, row);
      row.update(item);
      if (row.element === at) at = at.nextElementSibling;
      else this.body.insertBefore(row.element, at);
    }
    for (const { element } of before.values()) element.remove();
    if (focused instanceof HTMLElement && focused !== document.activeElement && this.body.contains(focused)) {
      focused.focus({ preventScroll: true });
    }
  }
}

export type Row<Item> = { readonly element: HTMLTableRowElement; update(item: Item): void };

/** Wide tables and pictures scroll by themselves, by keyboard too. */
export function scrolling(label: string, ...children: readonly Child[]): HTMLElement {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...children);
}
