import { StaleTokenError } from "../../src/fence/index.js";
import type { Resource } from "./kinds.js";
import { History, numbers, type Step, type Write, world } from "./world.js";

export type Tally = { interleavings: number; accepted: number; refused: number; racing: number; deadYounger: number };

export const emptyTally = (): Tally => ({ interleavings: 0, accepted: 0, refused: 0, racing: 0, deadYounger: 0 });

/** One random interleaving on a resource of its own. Rejects with what went wrong, and the seed. */
async function interleave(resource: Resource, seed: number, exact: boolean, tally: Tally): Promise<void> {
  const name = `seed${seed}`;
  let history = new History(exact);
  for (const step of world(numbers(seed), exact)) {
    if (step.kind === "raise") {
      await resource.raise(name, step.token);
      history = history.raise(step.token);
      continue;
    }
    const outcomes = await Promise.all(step.writes.map((write) => tried(resource, name, write)));
    const value = await resource.read(name);
    history = explained(history, step, outcomes, value, seed, tally);
  }
  tally.interleavings += 1;
}

/** Whether it was accepted. */
async function tried(resource: Resource, name: string, { value, shown }: Write): Promise<boolean> {
  try {
    await resource.write(name, value, shown);
    return true;
  } catch (error) {
    if (error instanceof StaleTokenError) return false;
    throw error;
  }
}

/** Writes under way at once may have come in any order, but one order must explain all that was seen. */
function explained(
  before: History,
  { writes }: Extract<Step, { kind: "writes" }>,
  outcomes: readonly boolean[],
  value: string | null,
  seed: number,
  tally: Tally,
): History {
  const wrong: string[] = [];
  for (const order of orders(writes.map((_, at) => at))) {
    let history = before;
    let problem: string | null = null;
    let deadYounger = 0;
    for (const at of order) {
      const write = writes[at] as Write;
      const accepted = outcomes[at] === true;
      problem ??= accepted ? history.wrongToAccept(write) : history.wrongToRefuse(write);
      if (accepted && history.overtaken(write)) deadYounger += 1;
      if (accepted) history = history.accept(write);
    }
    if (history.value !== value) problem ??= `the value is ${value}, not ${history.value}`;
    if (problem === null) {
      const accepted = outcomes.filter((yes) => yes).length;
      tally.accepted += accepted;
      tally.refused += outcomes.length - accepted;
      tally.racing += outcomes.length > 1 ? outcomes.length : 0;
      tally.deadYounger += deadYounger;
      return history;
    }
    wrong.push(problem);
  }
  throw new Error(`seed ${seed}: ${wrong.join("; or ")}`);
}

function orders(list: readonly number[]): number[][] {
  if (list.length < 2) return [[...list]];
  return list.flatMap((first) => orders(list.filter((one) => one !== first)).map((rest) => [first, ...rest]));
}

/** As many interleavings as asked for, some of them side by side. Even seeds show floors, odd ones exact sets where they can. */
export async function interleavings(
  resource: Resource,
  exact: boolean,
  seeds: { readonly from: number; readonly count: number },
  atOnce: number,
): Promise<Tally> {
  const tally = emptyTally();
  let next = seeds.from;
  const lane = async (): Promise<void> => {
    while (next < seeds.from + seeds.count) {
      const seed = next;
      next += 1;
      await interleave(resource, seed, exact && seed % 2 === 1, tally);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return tally;
}
