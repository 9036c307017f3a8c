import type { ClaimView, HolderView, NameView, WaiterView } from "../wire.js";
import { h, s, scrolling } from "./dom.js";
import { BOX_HEIGHT, BOX_WIDTH, COLUMN, type Component, componentsOf, type Edge, type Point, place } from "./layout.js";
import type { Model } from "./model.js";
import { bdi, lockHref, shortened, shortOwner, visible } from "./text.js";

const NAMES_MAX = 100;
const COMPONENTS_MAX = 20;
const PARTIES_MAX = 40;
/** More than so many who only wait for one name are drawn as one. */
const CROWD = 3;

/** Who waits for whom: deadlocks first, then chains. */
export class GraphPage {
  readonly element = h("section", { "aria-labelledby": "graph-title" });
  readonly #model: Model;
  readonly #parts = h("div");
  readonly #summary = h("p", { role: "status" });
  #told = "";

  constructor(model: Model) {
    this.#model = model;
    this.element.append(h("h2", { id: "graph-title" }, "Who waits for whom"), this.#summary, this.#parts);
  }

  update(): void {
    const { deadlocks } = this.#model;
    const queues = [...this.#model.names.values()]
      .filter(({ waiterCount, holders }) => waiterCount > 0 && holders.length > 0)
      .toSorted((a, b) => (a.waitingSince ?? 0) - (b.waitingSince ?? 0));
    const graph = graphOf(queues.slice(0, NAMES_MAX), new Set((deadlocks ?? []).flat()));
    const rank = ({ edges, cycle }: Component): number => (edges.some(isDead) ? 2 : cycle.length > 0 ? 1 : 0);
    const components = graph.toSorted((a, b) => rank(b) - rank(a) || b.edges.length - a.edges.length);
    const told = JSON.stringify([components, queues.length, deadlocks]);
    if (told === this.#told) return;
    this.#told = told;
    this.#summary.textContent = summaryText(queues.length, deadlocks === null ? null : deadlocks.length);
    this.#parts.replaceChildren(...components.slice(0, COMPONENTS_MAX).map(componentPart));
    const left = components.length - COMPONENTS_MAX;
    if (left > 0) this.#parts.append(h("p", {}, `And ${left} more groups, which are not drawn.`));
    if (queues.length > NAMES_MAX)
      this.#parts.append(
        h("p", {}, `Of ${queues.length} names with waiters, the ${NAMES_MAX} that are waited for longest.`),
      );
  }
}

const isDead = ({ deadlocked }: Edge): boolean => deadlocked;

function summaryText(queues: number, deadlocks: number | null): string {
  if (queues === 0) return "Nobody waits.";
  if (deadlocks === null) return "Too many wait to look for deadlocks.";
  if (deadlocks === 0) return "No deadlock is known.";
  return deadlocks === 1 ? "There is a deadlock." : `There are ${deadlocks} deadlocks.`;
}

const NONE: ReadonlySet<string> = new Set();

/** Parties are flows of control where claims name them, else whole programs. */
function graphOf(queues: readonly NameView[], dead: ReadonlySet<number>): Component[] {
  const flowOfHold = new Map<number, number>();
  for (const { waiters } of queues) {
    for (const { flow, holds } of waiters)
      if (flow !== undefined) for (const key of holds ?? []) flowOfHold.set(key, flow);
  }
  const holderParty = ({ key, client }: HolderView): string => {
    const flow = flowOfHold.get(key);
    return flow === undefined ? `client ${client}` : `flow ${flow}`;
  };
  const waiterParty = ({ flow, client }: WaiterView): string =>
    flow === undefined ? `client ${client}` : `flow ${flow}`;
  const holding = new Map<string, Set<string>>();
  for (const { name, holders } of queues) {
    for (const party of holders.map(holderParty)) holding.set(party, (holding.get(party) ?? new Set()).add(name));
  }
  const parties = new Map<string, string>();
  const edges = new Map<string, Edge & { readonly claims: Set<number> }>();
  const connect = (from: string, to: string, name: string, waiter: WaiterView): void => {
    // Two tasks of one program, of which nobody knows more: it does not wait for itself.
    if (from === to && !isFlow(from)) return;
    const id = JSON.stringify([from, to, name]);
    const claims = (edges.get(id)?.claims ?? new Set()).add(waiter.key);
    const deadlocked = edges.get(id)?.deadlocked === true || (dead.has(waiter.key) && isFlow(to));
    edges.set(id, { from, to, name, waits: claims.size, deadlocked, claims });
  };
  for (const { name, holders, waiters, waiterCount } of queues) {
    const heldBy = (waiter: WaiterView): ReadonlySet<string> => holding.get(waiterParty(waiter)) ?? NONE;
    const idle = waiters.filter((waiter) => ![...heldBy(waiter)].some((held) => held !== name));
    // Also whoever holds permits of the same semaphore: nobody knows which of its tasks waits.
    const beside = idle.filter((waiter) => waiter.flow === undefined && heldBy(waiter).has(name));
    const crowd = new Set<ClaimView>(idle.length > CROWD ? idle : beside);
    for (const holder of holders) {
      const to = holderParty(holder);
      parties.set(to, shortOwner(holder));
      for (const waiter of waiters) {
        if (crowd.has(waiter)) continue;
        const from = waiterParty(waiter);
        parties.set(from, shortOwner(waiter));
        connect(from, to, name, waiter);
      }
      if (crowd.size === 0) continue;
      const waits = crowd.size + waiterCount - waiters.length;
      const from = `crowd ${name}`;
      parties.set(from, waits === 1 ? "1 waiter" : `${waits} waiters`);
      edges.set(JSON.stringify([from, to, name]), { from, to, name, waits, deadlocked: false, claims: new Set() });
    }
  }
  return componentsOf(
    parties,
    Array.from(edges.values(), ({ from, to, name, waits, deadlocked }) => ({ from, to, name, waits, deadlocked })),
  );
}

const isFlow = (party: string): boolean => party.startsWith("flow ");

function componentPart(component: Component): HTMLElement {
  const { parties, edges, cycle } = component;
  const texts = new Map(parties.map(({ id, text }) => [id, text]));
  const deadlocked = edges.some(isDead);
  const title = deadlocked ? "⚠ Deadlock" : cycle.length > 0 ? "Cycle of programs" : "Chain";
  const remark = deadlocked
    ? "None of these can go on before one of them gives up."
    : cycle.length > 0
      ? "Each of these programs has a task that waits for another one of them. It is a deadlock only if the same task holds what the others wait for, which claims tell when detectDeadlockAfterMs is on."
      : null;
  const items = edges.slice(0, PARTIES_MAX).map((edge) => edgeItem(edge, texts));
  const drawn = parties.length <= PARTIES_MAX;
  return h(
    "article",
    { class: deadlocked ? "deadlock" : "" },
    h("h3", {}, `${title} of ${parties.length}`),
    remark === null ? null : h("p", {}, remark),
    drawn
      ? scrolling(`${title}, drawn; the same follows as text`, drawing(component))
      : h("p", {}, "Too many to draw."),
    h("ul", {}, ...items, edges.length > items.length ? h("li", {}, `and ${edges.length - items.length} more`) : null),
  );
}

function edgeItem({ from, to, name, deadlocked }: Edge, texts: ReadonlyMap<string, string>): HTMLElement {
  const link = h("a", { href: lockHref(name) }, bdi(name));
  const who = (id: string): HTMLElement => h("bdi", {}, texts.get(id) ?? "");
  return h("li", {}, who(from), " waits for ", link, ", held by ", who(to), deadlocked ? " (deadlocked)" : null);
}

function drawing(component: Component): SVGElement {
  const { points, width, height } = place(component);
  const box = ({ id, text }: { id: string; text: string }): SVGElement => {
    const { x, y } = points.get(id) as Point;
    const kind = component.edges.some((edge) => isDead(edge) && edge.from === id) ? "party bad" : "party";
    const frame = s("rect", { class: kind, x, y: y - BOX_HEIGHT / 2, width: BOX_WIDTH, height: BOX_HEIGHT, rx: 6 });
    const label = s("text", { x: x + BOX_WIDTH / 2, y: y + 4, "text-anchor": "middle" }, shortened(text, 24));
    return s("g", {}, frame, label, s("title", {}, text));
  };
  const lines = component.edges.map((edge) =>
    arrow(edge, points.get(edge.from) as Point, points.get(edge.to) as Point),
  );
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  const label = `${component.parties.length} parties, ${component.edges.length} waits`;
  return s("svg", { ...size, role: "img", "aria-label": label }, ...lines, ...component.parties.map(box));
}

/** From the edge of one box to the edge of the other, with the name on it; in a bow where it would run behind a third. */
function arrow({ name, waits, deadlocked }: Edge, from: Point, to: Point): SVGElement {
  const [a, b] = [center(from), center(to)];
  const bent = Math.abs(b.x - a.x) > COLUMN + 1 && Math.abs(b.y - a.y) < BOX_HEIGHT;
  const control = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 - (bent ? 1.6 * BOX_HEIGHT : 0) };
  const [start, end] = [border(a, bent ? control : b), border(b, bent ? control : a)];
  const angle = Math.atan2(end.y - control.y, end.x - control.x);
  const side = (turn: number): string => `${end.x - 9 * Math.cos(angle + turn)} ${end.y - 9 * Math.sin(angle + turn)}`;
  const kind = deadlocked ? "wait bad" : "wait";
  const label = `${shortened(visible(name), 20)}${waits > 1 ? ` ×${waits}` : ""}`;
  const middle = { x: (start.x + 2 * control.x + end.x) / 4, y: (start.y + 2 * control.y + end.y) / 4 - 5 };
  const line = `M${start.x} ${start.y}Q${control.x} ${control.y} ${end.x} ${end.y}M${side(0.45)}L${end.x} ${end.y}L${side(-0.45)}`;
  return s(
    "g",
    {},
    s("path", { class: kind, d: line }),
    s("text", { ...middle, class: "on-line", "text-anchor": "middle" }, label),
    s("title", {}, visible(name)),
  );
}

const center = ({ x, y }: Point): Point => ({ x: x + BOX_WIDTH / 2, y });

function border(from: Point, to: Point): Point {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const scale = Math.min((BOX_WIDTH / 2 + 3) / Math.abs(dx || 1e-9), (BOX_HEIGHT / 2 + 3) / Math.abs(dy || 1e-9), 0.5);
  return { x: from.x + dx * scale, y: from.y + dy * scale };
}
