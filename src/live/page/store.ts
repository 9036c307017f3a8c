import type { StatusView, StoreView } from "../wire.js";
import { h } from "./dom.js";
import type { Model } from "./model.js";
import { ageText, visible } from "./text.js";

const GUARANTEES: Readonly<Record<string, string>> = {
  exclusion: "Exclusion",
  token: "Tokens",
  order: "Order of the queue",
  wake: "Waiters are woken by",
  crashRelease: "Release after a crash",
  survivesRestart: "Survives a restart of the store",
};

/** Which store this is, what it guarantees, and how fast it answers. */
export class StorePage {
  readonly element = h("section", { "aria-labelledby": "store-title" });
  readonly #model: Model;
  #told = "";

  constructor(model: Model) {
    this.#model = model;
  }

  update(): void {
    const { store, status } = this.#model;
    const told = JSON.stringify([store, status]);
    if (told === this.#told) return;
    this.#told = told;
    this.element.replaceChildren(
      h("h2", { id: "store-title" }, "The store"),
      ...(store === null ? [h("p", {}, "Asking it …")] : storeParts(store)),
      ...(status === null ? [] : [h("h3", {}, "This view"), list(viewFacts(status))]),
    );
  }
}

function storeParts(store: StoreView): HTMLElement[] {
  const probe = store.probeMs === null ? "not answered" : `${store.probeMs} ms`;
  const guarantees = Object.entries(store.guarantees).map(([key, value]) => [
    GUARANTEES[key] ?? key,
    typeof value === "boolean" ? yes(value) : value,
  ]);
  const server = Object.entries(store.server ?? {}).map(([key, value]) => [SERVER[key] ?? key, serverText(key, value)]);
  return [
    list([
      ["Engine", store.engine],
      ["A small read took", probe],
    ]),
    h("h3", {}, "What it guarantees"),
    list(guarantees),
    h("h3", {}, "What the server says"),
    server.length === 0 ? h("p", { class: "dim" }, "This store does not say.") : list(server),
  ];
}

const SERVER: Readonly<Record<string, string>> = {
  server: "Identity",
  upMs: "Running for at least",
  replica: "Copies another server",
  replicas: "Servers that copy it",
  cluster: "Node of a cluster",
};

function serverText(key: string, value: string | number | boolean): string {
  if (typeof value === "boolean") return yes(value);
  return key === "upMs" ? ageText(Number(value)) : String(value);
}

function viewFacts({ tookMs, everyMs, shown, more }: StatusView): string[][] {
  return [
    ["Names that are shown", `${shown.toLocaleString("en")}${more ? ", the store has more" : ""}`],
    ["Read every", ageText(everyMs)],
    ["The last reading took", tookMs === null ? "not yet" : `${tookMs} ms`],
  ];
}

const yes = (value: boolean): string => (value ? "yes" : "no");

function list(facts: readonly (readonly string[])[]): HTMLElement {
  return h(
    "dl",
    {},
    ...facts.flatMap(([term = "", told = ""]) => [h("dt", {}, term), h("dd", {}, h("bdi", {}, visible(told)))]),
  );
}
