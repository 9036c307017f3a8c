import { expect, test } from "vitest";
import type { NameState } from "../../src/core/inspect.js";
import { type Deadlock, findDeadlock } from "../../src/recipes/deadlock-graph.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** A hold, and the flows of control that keep it until their wait is over. Nobody keeps one whose program goes on. */
type Held = { readonly id: string; readonly name: string; readonly units: number; readonly keepers: Set<string> };

/** A flow of control that waits. `silent`: its claim says nothing of what it holds, which is nothing. */
type Waiting = {
  readonly flow: string;
  readonly name: string;
  readonly units: number;
  readonly since: number;
  readonly silent: boolean;
};

/** `queue` in order of arrival. */
type World = {
  readonly capacities: ReadonlyMap<string, number>;
  readonly held: readonly Held[];
  readonly queue: readonly Waiting[];
};

function randomWorld(chance: SeededChance): World {
  const capacities = new Map(
    Array.from({ length: chance.between(1, 5) }, (_, n) => [`name ${n}`, chance.between(1, 3)]),
  );
  const names = [...capacities.keys()];
  const pick = <One>(list: readonly One[]): One => list[chance.between(0, list.length - 1)] as One;
  const flows = Array.from({ length: chance.between(2, 8) }, (_, n) => `flow ${n}`);
  const silent = new Set(flows.filter(() => chance.chance(0.1)));
  const held: Held[] = [];
  for (const [name, capacity] of capacities) {
    for (let left = capacity; left > 0 && chance.chance(0.9); ) {
      const units = chance.between(1, left);
      left -= units;
      // Now and then a hold is shared by work that runs in parallel inside of it, or held by a program that goes on.
      const sharing = chance.chance(0.1) ? chance.between(0, 2) : 1;
      const keepers = new Set(Array.from({ length: sharing }, () => pick(flows)).filter((flow) => !silent.has(flow)));
      held.push({ id: `hold ${held.length}`, name, units, keepers });
    }
  }
  const queue = flows.map((flow) => {
    const name = pick(names);
    const units = chance.between(1, capacities.get(name) ?? 1);
    return { flow, name, units, since: chance.between(1, 4), silent: silent.has(flow) };
  });
  return { capacities, held, queue };
}

/** Who waits for ever: let everybody go on who can, in any order, until nobody can. */
function stuckIn({ capacities, held, queue }: World): Set<string> {
  const waiting = [...queue];
  for (let before = -1; before !== waiting.length; ) {
    before = waiting.length;
    for (const [name, capacity] of capacities) {
      const kept = held.filter((one) => one.name === name && waiting.some(({ flow }) => one.keepers.has(flow)));
      const taken = kept.reduce((sum, { units }) => sum + units, 0);
      const first = waiting.find((one) => one.name === name);
      if (first !== undefined && taken + first.units <= capacity) waiting.splice(waiting.indexOf(first), 1);
    }
  }
  return new Set(waiting.map(({ flow }) => flow));
}

/** These flows fail: they wait no longer, and what they hold is given back. */
function without({ capacities, held, queue }: World, leaving: ReadonlySet<string>): World {
  return {
    capacities,
    queue: queue.filter(({ flow }) => !leaving.has(flow)),
    held: held.map((one) => ({ ...one, keepers: new Set([...one.keepers].filter((flow) => !leaving.has(flow))) })),
  };
}

/** What the store says of a world. A name is found only by what is held of it, so the order of the names is chance. */
function statesOf({ capacities, held, queue }: World): NameState[] {
  const owner = (label: string) => ({ client: "c", host: "h", pid: 1, label });
  return [...capacities].map(([name, capacity]) => ({
    name,
    capacity,
    lastToken: 1,
    holders: held
      .filter((one) => one.name === name)
      .map(({ id, units }) => ({ id, units, token: 1, leftMs: 1000, owner: owner(id) })),
    waiters: queue
      .filter((one) => one.name === name)
      .map(({ flow, units, since, silent }) => {
        const holds = held.filter(({ keepers }) => keepers.has(flow)).map((one) => ({ name: one.name, id: one.id }));
        const data = silent ? {} : { data: JSON.stringify({ stake: { flow, since, holds } }) };
        return { id: `claim of ${flow}`, units, leftMs: 1000, owner: owner(flow), ...data };
      }),
  }));
}

function deadlocksOf(world: World): Map<string, Deadlock> {
  const states = statesOf(world);
  const found = world.queue.map(({ flow }) => [flow, findDeadlock(states, flow)] as const);
  return new Map(found.filter((one): one is [string, Deadlock] => one[1] !== null));
}

test("random waits: only what waits for ever is a deadlock, no other victim would solve it, and with its victims all is solved", () => {
  let solved = 0;
  let several = 0;
  for (let seed = 1; seed <= 1500; seed += 1) {
    let world = randomWorld(new SeededChance(seed));
    for (let stuck = stuckIn(world); stuck.size > 0; stuck = stuckIn(world)) {
      const said = `seed ${seed}: ${JSON.stringify(statesOf(world))}`;
      const deadlocks = deadlocksOf(world);
      const victims = new Set<string>();
      for (const [flow, { victim, cycle, signature }] of deadlocks) {
        expect(stuck.has(flow), said).toBe(true);
        // All who are in it come to the same victim: the last to come.
        const members = world.queue.filter((one) => deadlocks.get(one.flow)?.signature === signature);
        const last = members.toSorted((a, b) => b.since - a.since || (a.flow < b.flow ? 1 : -1))[0];
        expect(victim, said).toBe(last?.flow);
        if (victim === flow) victims.add(flow);
        expectCycle(world, flow, cycle, said);
      }
      expect(victims.size, said).toBeGreaterThan(0);
      several += victims.size > 1 ? 1 : 0;
      // A deadlock that another one's victim solves was none: its own victim would fail for nothing.
      for (const [flow, { victim }] of deadlocks) {
        const others = new Set([...victims].filter((one) => one !== victim));
        expect(stuckIn(without(world, others)).has(flow), said).toBe(true);
      }
      solved += victims.size;
      world = without(world, victims);
    }
    expect(deadlocksOf(world).size, `seed ${seed}: nobody is stuck`).toBe(0);
  }
  expect(solved).toBeGreaterThan(300);
  expect(several).toBeGreaterThan(20);
});

/** From the flow that asks back to it: each waits for what the next one holds, or behind it in the queue. */
function expectCycle({ held, queue }: World, asking: string, cycle: Deadlock["cycle"], said: string): void {
  const flows = cycle.map(({ owner }) => owner.label ?? "");
  expect(flows[0], said).toBe(asking);
  expect(new Set(flows).size, said).toBe(flows.length);
  for (const [n, { holds, waitsFor }] of cycle.entries()) {
    const flow = flows[n] ?? "";
    const next = flows[(n + 1) % flows.length] ?? "";
    const own = held.filter(({ keepers }) => keepers.has(flow)).map(({ name }) => name);
    expect(holds, said).toEqual(own);
    const at = (one: string): number => queue.findIndex((waiting) => waiting.flow === one);
    expect(waitsFor, said).toBe(queue[at(flow)]?.name);
    const behind = queue[at(next)]?.name === waitsFor && at(next) < at(flow);
    const holding = held.some(({ name, keepers }) => name === waitsFor && keepers.has(next));
    expect(behind || holding, said).toBe(true);
  }
}

test("a deadlock of many is described without going every way through it", () => {
  // Layers of ten: each waits for all ten permits of the next layer. There are 10^7 ways around.
  const [layers, width] = [7, 10];
  let reads = 0;
  const data = (flow: string, name: string, id: string): string =>
    JSON.stringify({ stake: { flow, since: 1, holds: [{ name, id }] } });
  const common = { leftMs: 1000, owner: { client: "c", host: "h", pid: 1 } };
  const states: NameState[] = Array.from({ length: layers }, (_, layer) => {
    const before = (layer + layers - 1) % layers;
    const each = Array.from({ length: width }, (_unused, n) => n);
    const holders = each.map((n) => ({ ...common, id: `${layer}/${n}`, units: 1, token: 1 }));
    return {
      name: `layer ${layer}`,
      capacity: width,
      lastToken: 1,
      waiters: each.map((n) => ({
        ...common,
        id: `waits ${before}/${n}`,
        units: 1,
        data: data(`${before}/${n}`, `layer ${before}`, `${before}/${n}`),
      })),
      get holders() {
        reads += 1;
        if (reads > 20_000) throw new Error("the ways are walked one by one");
        return holders;
      },
    };
  });
  expect(findDeadlock(states, "0/0")?.cycle).toHaveLength(layers);
});
