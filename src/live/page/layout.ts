/** Where to draw the parties of a wait-for graph. */

export type Edge = {
  readonly from: string;
  readonly to: string;
  readonly name: string;
  readonly waits: number;
  readonly deadlocked: boolean;
};

type Party = { readonly id: string; readonly text: string };
export type Component = {
  readonly parties: readonly Party[];
  readonly edges: readonly Edge[];
  readonly cycle: readonly string[];
};
export type Point = { readonly x: number; readonly y: number };

export const BOX_WIDTH = 170;
export const BOX_HEIGHT = 34;
export const COLUMN = BOX_WIDTH + 150;
const [ROW, MARGIN] = [BOX_HEIGHT + 34, 12];

/** The parts of the graph that hang together; of each, a way back to its own start, if it has one. */
export function componentsOf(parties: ReadonlyMap<string, string>, edges: readonly Edge[]): Component[] {
  const next = groups(edges, "from");
  const before = groups(edges, "to");
  const seen = new Set<string>();
  const components: Component[] = [];
  for (const start of parties.keys()) {
    if (seen.has(start)) continue;
    const members: string[] = [];
    const left = [start];
    for (let id = left.pop(); id !== undefined; id = left.pop()) {
      if (seen.has(id)) continue;
      seen.add(id);
      members.push(id);
      for (const { to } of next.get(id) ?? []) left.push(to);
      for (const { from } of before.get(id) ?? []) left.push(from);
    }
    const own = edges.filter(({ from }) => members.includes(from));
    const shown = members.map((id) => ({ id, text: parties.get(id) ?? "" }));
    if (own.length > 0) components.push({ parties: shown, edges: own, cycle: cycleOf(own, next) });
  }
  return components;
}

function groups(edges: readonly Edge[], end: "from" | "to"): Map<string, Edge[]> {
  const made = new Map<string, Edge[]>();
  for (const edge of edges) made.set(edge[end], [...(made.get(edge[end]) ?? []), edge]);
  return made;
}

/** The shortest way from one of them back to itself; through a deadlock, if there is one. */
function cycleOf(edges: readonly Edge[], next: ReadonlyMap<string, readonly Edge[]>): string[] {
  const dead = edges.filter(({ deadlocked }) => deadlocked);
  let best: string[] = [];
  for (const { from: start } of dead.length > 0 ? dead : edges) {
    const ways: string[][] = [[start]];
    const seen = new Set<string>();
    for (let way = ways.shift(); way !== undefined; way = ways.shift()) {
      if (best.length > 0 && way.length >= best.length) break;
      for (const { to, deadlocked } of next.get(way.at(-1) ?? "") ?? []) {
        if (dead.length > 0 && !deadlocked) continue;
        if (to === start) best = way;
        else if (!seen.has(to)) ways.push([...way, to]);
        seen.add(to);
      }
      if (best === way) break;
    }
  }
  return best;
}

/** Who waits stands left of whom it waits for; a cycle stands in a circle at the right. */
export function place(component: Component): { points: Map<string, Point>; width: number; height: number } {
  const { parties, edges, cycle } = component;
  const depths = depthsOf(parties, edges, cycle);
  const columns: string[][] = [];
  for (const { id } of parties) if (!cycle.includes(id)) (columns[depths.get(id) ?? 0] ??= []).push(id);
  const last = Math.max(0, columns.length - 1);
  const points = new Map<string, Point>();
  columns.forEach((column, depth) =>
    column.forEach((id, at) => points.set(id, { x: (last - depth) * COLUMN, y: (at - (column.length - 1) / 2) * ROW })),
  );
  // Two neighbours in the circle are as far apart as two columns; flattened, as boxes are wider than high.
  const radius = COLUMN / (2 * Math.sin(Math.PI / Math.max(2, cycle.length)));
  cycle.forEach((id, at) => {
    const turn = (2 * Math.PI * at) / cycle.length - (cycle.length === 2 ? Math.PI : Math.PI / 2);
    points.set(id, { x: last * COLUMN + radius * (1 + Math.cos(turn)), y: 0.6 * radius * Math.sin(turn) });
  });
  return moved(points);
}

/** To where the picture begins. Above stays room for arrows in a bow. */
function moved(points: ReadonlyMap<string, Point>): ReturnType<typeof place> {
  const [xs, ys] = [Array.from(points.values(), ({ x }) => x), Array.from(points.values(), ({ y }) => y)];
  const [left, top] = [Math.min(...xs) - MARGIN, Math.min(...ys) - BOX_HEIGHT - MARGIN];
  const placed = Array.from(points, ([id, { x, y }]) => [id, { x: x - left, y: y - top }] as const);
  const [width, height] = [
    Math.max(...xs) - left + BOX_WIDTH + MARGIN,
    Math.max(...ys) - top + BOX_HEIGHT / 2 + MARGIN,
  ];
  return { points: new Map(placed), width, height };
}

/** How many steps it is to whoever waits for nobody, or to the cycle. */
function depthsOf(parties: readonly Party[], edges: readonly Edge[], cycle: readonly string[]): Map<string, number> {
  const depths = new Map(parties.map(({ id }) => [id, 0]));
  const inCycle = new Set(cycle);
  // As often as there are parties: a longest way has no more steps, and in another cycle it would not end.
  for (let round = 0; round < parties.length; round += 1) {
    let moved = false;
    for (const { from, to } of edges) {
      const depth = Math.min((depths.get(to) ?? 0) + 1, parties.length);
      if (inCycle.has(from) || depth <= (depths.get(from) ?? 0)) continue;
      depths.set(from, depth);
      moved = true;
    }
    if (!moved) break;
  }
  return depths;
}
