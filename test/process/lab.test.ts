import { expect, onTestFinished, test } from "vitest";
import { brokenLibrary } from "../../lab/broken.js";
import { ROOT } from "../../lab/lib/results.js";
import { choose, type Played, play } from "../../lab/matrix.js";
import { ENGINES } from "../../lab/rigs.js";

/** The short lab: `npm run lab` has every fault. */
const FAULTS = ["kill", "pause", "late-renewals"];
const LIMIT = { timeout: 180_000 };

const found = (played: readonly Played[]) =>
  played.map(({ cell: { fault, outcome, wrong } }) => ({ fault, outcome, wrong }));

test.concurrent.each(ENGINES.map(({ name }) => name))(
  "the lab, %s: a holder that is killed, paused or not answered",
  LIMIT,
  async (name) => {
    const played = await play({ ...choose([name, ...FAULTS]), library: `${ROOT}/dist`, seed: 1, repeat: 1 });
    expect(found(played)).toEqual([
      { fault: "kill", outcome: "freed", wrong: [] },
      { fault: "pause", outcome: "late write", wrong: [] },
      { fault: "late-renewals", outcome: "passed on", wrong: [] },
    ]);
  },
);

function broken(way: string): string {
  const { path, remove } = brokenLibrary(way);
  onTestFinished(remove);
  return path;
}

test("without tokens the stale write is accepted, and the lab says so", LIMIT, async () => {
  const [{ cell } = never()] = await play({
    ...choose(["redis", "pause"]),
    library: broken("tokens"),
    seed: 1,
    repeat: 1,
  });
  expect(cell.ok).toBe(false);
  expect(cell.findings).toMatchObject({ fencedRefused: 0 });
  expect(cell.wrong.join("\n")).toMatch(/stale writes were accepted/);
});

test(
  "pitfall 7: a deadline that counts from the answer makes two holders of a late grant, and of nothing else here",
  LIMIT,
  async () => {
    const choice = choose(["redis", "kill", "late-grant"]);
    const played = await play({ ...choice, library: broken("deadline"), seed: 1, repeat: 1 });
    const [kill = never(), late = never()] = played.map(({ cell }) => cell);
    expect(kill).toMatchObject({ fault: "kill", ok: true });
    expect(late).toMatchObject({ fault: "late-grant", ok: false, outcome: "two holders", expected: "not taken" });
  },
);

function never(): never {
  throw new Error("a cell is missing");
}
