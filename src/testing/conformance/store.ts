import assert from "node:assert/strict";
import type { Cell, Cells } from "../../core/cells.js";
import type { ClaimAnswer, Engine, RenewAnswer } from "../../core/engine.js";
import type { ClaimState } from "../../core/inspect.js";
import { between, type Case, granted, type Kit, queued, renewOne, stateOf } from "./kit.js";

function cellsOf(engine: Engine): Cells {
  assert.ok(engine.cells, "this engine has no cells: excuse the case, and expect null in its place");
  return engine.cells;
}

const CROWD = 3;

/** One claim's life, waiting for its turn where it must; a large one shrinks on the way. */
async function comeAndGo(kit: Kit, engine: Engine, name: string, units: number): Promise<void> {
  for (;;) {
    const claim = kit.claim(name, { capacity: CROWD, units });
    let { kind }: ClaimAnswer | RenewAnswer = await engine.claim(claim);
    while (kind === "queued" || kind === "unknown") ({ kind } = await renewOne(engine, claim));
    if (kind === "granted" && units > 1) assert.equal(await engine.resize(claim, units - 1), "resized");
    if (kind !== "busy") assert.equal(await engine.release({ ...claim, tombstone: "never" }), "released");
    if (kind === "granted") return;
  }
}

const operation = (kit: Kit): string => kit.name("op");

/** What the store shows and keeps beside the claims: inspect, cells, guarantees, the end of a client. */
export const store: readonly Case[] = [
  {
    name: "inspect shows holders by token and waiters by arrival, with owner, data, units and time left",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const owner = { client: "client-1", host: "höst", pid: 7, label: 'a "label" with {odd} things' };
      const ask = { capacity: 3, owner };
      const one = kit.claim(name, { ...ask, data: '{"value":"ü"}' });
      const two = kit.claim(name, { ...ask, units: 2 });
      const [three, four] = [kit.claim(name, ask), kit.claim(name, { ...ask, units: 3 })];
      const [first, second] = [granted(await a.claim(one)), granted(await b.claim(two))];
      queued(await b.claim(three));
      const last = queued(await a.claim(four));
      assert.deepEqual(last.holder ?? owner, owner, "who holds it, where the store says so");
      const states = [];
      for await (const state of b.inspect({ prefix: name })) states.push(state);
      assert.equal(states.length, 1);
      const [state] = states;
      assert.ok(state);
      assert.deepEqual([state.name, state.capacity, state.lastToken], [name, 3, last.token]);
      const most = Math.max(one.leaseMs, a.leaseMinMs);
      for (const claim of [...state.holders, ...state.waiters]) between(claim.leftMs, 1, most, "time left");
      // Since when is another case's matter.
      const ages = { heldMs: undefined, waitingMs: undefined };
      const shown = (list: readonly ClaimState[]) => list.map((entry) => ({ ...entry, leftMs: 0, ...ages }));
      assert.deepEqual(shown(state.holders), [
        { id: one.id, units: 1, leftMs: 0, owner, data: one.data, token: first.token, ...ages },
        { id: two.id, units: 2, leftMs: 0, owner, token: second.token, ...ages },
      ]);
      assert.deepEqual(shown(state.waiters), [
        { id: three.id, units: 1, leftMs: 0, owner, ...ages },
        { id: four.id, units: 3, leftMs: 0, owner, ...ages },
      ]);
      for (const claim of [four, three, two, one]) assert.equal(await a.release(claim), "released");
      await kit.passesOn(b, name, [one, two, three, four], 3);
    },
  },
  {
    name: "inspect shows one moment: while claims come and go each stands there once, and no more is held than fits",
    async run(kit) {
      const clients = [await kit.open(), await kit.open(), await kit.open()];
      const watcher = await kit.open();
      const name = kit.name();
      const over = new AbortController();
      const work = async (): Promise<void> => {
        // From nobody to a crowd and back: some stores keep a lone claim in another place.
        for (let round = 0; round < 20; round += 1) {
          await Promise.all(clients.map((engine, n) => comeAndGo(kit, engine, name, ((n + round) % CROWD) + 1)));
        }
      };
      const wrong: string[] = [];
      const inspectMeanwhile = async (): Promise<void> => {
        while (!over.signal.aborted) {
          const state = await stateOf(watcher, name);
          const ids = [...(state?.holders ?? []), ...(state?.waiters ?? [])].map(({ id }) => id);
          const held = (state?.holders ?? []).reduce((sum, { units }) => sum + units, 0);
          if (new Set(ids).size < ids.length || held > CROWD) wrong.push(JSON.stringify(state));
        }
      };
      const done = work().finally(() => over.abort());
      await kit.settled(Promise.all([done, inspectMeanwhile(), inspectMeanwhile(), inspectMeanwhile()]), 100);
      assert.deepEqual(wrong, [], "a claim twice, or more held than fits");
      await kit.passesOn(watcher, name, [], CROWD);
    },
  },
  {
    name: "inspect finds names by prefix, and neither idle nor expired ones",
    async run(kit) {
      const a = await kit.open();
      const stem = kit.name("Prefix %_*[a]");
      const held = [kit.claim(`${stem}/1`), kit.claim(`${stem}/2`)];
      const [dead, released] = [kit.claim(`${stem}/3`, { leaseMs: kit.step }), kit.claim(`${stem}/4`)];
      for (const claim of [...held, dead, released]) granted(await a.claim(claim));
      assert.equal(await a.release(released), "released");
      await kit.pass(1.5);
      const names = async (prefix: string): Promise<string[]> => {
        const found = [];
        for await (const state of a.inspect({ prefix })) found.push(state.name);
        return found.toSorted();
      };
      assert.deepEqual(
        await names(stem),
        held.map((claim) => claim.name),
      );
      assert.deepEqual(await names(stem.toLowerCase()), [], "upper and lower case differ");
      for (const claim of held) assert.equal(await a.release(claim), "released");
      assert.deepEqual(await names(stem), []);
    },
  },
  {
    name: "a cell is written over the version that was read, once per operation",
    async run(kit) {
      const [a, b] = [cellsOf(await kit.open()), cellsOf(await kit.open())];
      const name = kit.name("cell");
      assert.deepEqual(await a.read(name), { version: 0, value: null });
      const write = { name, operation: operation(kit), expected: 0, value: "ü 1" };
      const first = await a.write(write);
      assert.deepEqual([first.kind, first.cell.value], ["written", "ü 1"]);
      assert.deepEqual(await b.read(name), first.cell);
      const stale = { ...write, operation: operation(kit) };
      assert.deepEqual(await b.write(stale), { kind: "conflict", cell: first.cell });
      const second = await b.write({ name, operation: operation(kit), expected: first.cell.version, value: "2" });
      assert.equal(second.kind, "written");
      assert.ok(second.cell.version > first.cell.version);
      assert.deepEqual(await a.write(write), first, "a write whose answer was lost counts once");
      assert.deepEqual(await a.read(name), second.cell);
      const removal = { name, operation: operation(kit), expected: second.cell.version, value: null };
      assert.deepEqual(await a.write(removal), { kind: "written", cell: { version: 0, value: null } });
      assert.deepEqual(await a.write(removal), { kind: "written", cell: { version: 0, value: null } });
      assert.equal((await b.write(stale)).kind, "conflict", "a copy of a write that was refused stays refused");
      const refused = { name, operation: operation(kit), expected: 1, value: "late" };
      assert.equal((await a.write(refused)).kind, "conflict");
      const back = await b.write({ name, operation: operation(kit), expected: 0, value: "3" });
      assert.ok(back.cell.version > second.cell.version, "versions grow over a removal");
      await b.write({ name, operation: operation(kit), expected: back.cell.version, value: null });
    },
  },
  {
    name: "of many writers over one version exactly one wins",
    async run(kit) {
      const [a, b] = [cellsOf(await kit.open()), cellsOf(await kit.open())];
      const name = kit.name("cell");
      const writes = Array.from({ length: 10 }, (_, n) =>
        (n % 2 ? a : b).write({ name, operation: operation(kit), expected: 0, value: `${n}` }),
      );
      const answers = await Promise.all(writes);
      const winners = answers.filter((answer) => answer.kind === "written");
      assert.equal(winners.length, 1);
      const cell = await a.read(name);
      assert.deepEqual(cell, winners[0]?.cell);
      await a.write({ name, operation: operation(kit), expected: cell.version, value: null });
    },
  },
  {
    name: "a watcher of a cell learns of changes by others, until it leaves",
    async run(kit) {
      const [a, b] = [cellsOf(await kit.open()), cellsOf(await kit.open())];
      const name = kit.name("cell");
      const seen: Cell[] = [];
      const unwatch = a.watch(name, (cell) => seen.push(cell));
      // Watching may take a moment to begin: write until it is seen.
      let { version } = await b.read(name);
      await kit.until(20, "a change is told", async () => {
        version = (await b.write({ name, operation: operation(kit), expected: version, value: "x" })).cell.version;
        await kit.pass(0.05);
        return seen.length > 0;
      });
      await kit.until(20, "the last change is told", () => seen.at(-1)?.version === version);
      unwatch();
      const before = seen.length;
      await b.write({ name, operation: operation(kit), expected: version, value: null });
      await kit.pass(0.2);
      assert.equal(seen.length, before);
    },
  },
  {
    name: "the engine says what it is and what it guarantees",
    async run(kit) {
      const a = await kit.open();
      assert.match(a.kind, /^[a-z][a-z-]*$/);
      assert.ok(a.leaseMinMs > 0);
      assert.deepEqual(Object.keys(a.guarantees).toSorted(), [
        "crashRelease",
        "exclusion",
        "order",
        "survivesRestart",
        "token",
        "wake",
      ]);
    },
  },
  {
    name: "a disposed engine refuses calls, may be disposed twice, and what it held passes on by lease at the latest",
    async run(kit) {
      const [a, b] = [await kit.open(), await kit.open()];
      const name = kit.name();
      const holder = kit.claim(name, { leaseMs: kit.step });
      granted(await a.claim(holder));
      await a[Symbol.asyncDispose]();
      await a[Symbol.asyncDispose]();
      await assert.rejects(async () => a.claim(kit.claim(name)));
      await assert.rejects(async () => a.renew([holder]));
      await kit.pass(1.5);
      assert.equal((await renewOne(b, holder)).kind, "gone");
      await kit.passesOn(b, name, [holder]);
    },
  },
];
