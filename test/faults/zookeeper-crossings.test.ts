import { afterAll, beforeAll, expect, test } from "vitest";
import { SystemChance } from "../../src/core/clock.js";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { ZooKeeperEngine } from "../../src/engines/zookeeper/engine.js";
import { checkOptions } from "../../src/engines/zookeeper/options.js";
import { stateOf } from "../../src/testing/conformance/kit.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { type PacketGate, packetGate, type Way } from "../servers/packet-gate.js";
import { pause, until } from "../servers/process.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";

/**
 * Two clients cross, at every packet: one asks, its wire stands still at the nth packet, and the other does all that it wants to
 * do before it goes on. What both are answered, and what is left, is what the reference says of one order or of the other. Or the
 * wire breaks there, and what was asked is asked again.
 */

const SESSION_MS = 3_600_000;
const RUN_MS = 180_000;
const owner = { client: "c", host: "h", pid: 1 };

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper({ lines: [`maxSessionTimeout=${SESSION_MS}`] })), 60_000);
afterAll(() => server?.running.stop());

/** By whom, how many units, which id; `chosen`: both may claim with it. */
type Command =
  | { readonly do: "claim"; readonly id: string; readonly units?: number; readonly of?: number; readonly chosen?: true }
  | { readonly do: "try"; readonly id: string; readonly units?: number; readonly of?: number }
  | { readonly do: "release"; readonly id: string; readonly settled?: true }
  | { readonly do: "renew"; readonly id: string }
  | { readonly do: "resize"; readonly id: string; readonly units: number }
  | { readonly do: "capacity"; readonly from: number; readonly to: number }
  | { readonly do: "inspect" };

type Crossing = {
  readonly what: string;
  readonly capacity: number;
  /** Who stands there before: of the far client 0, whose wire stands still, or of the near one. */
  readonly before: readonly (readonly [client: 0 | 1, id: string, units?: number])[];
  readonly far: Command;
  /** Left out: only the wire breaks. */
  readonly near?: Command;
  /** What both are answered that is of neither order, and harms nobody. */
  readonly also?: readonly [far: string, near: string];
};

const claim = (id: string, units?: number, of?: number): Command => ({
  do: "claim",
  id,
  ...(units === undefined ? {} : { units }),
  ...(of === undefined ? {} : { of }),
});
const tries = (id: string, units = 1, of?: number): Command => ({
  do: "try",
  id,
  units,
  ...(of === undefined ? {} : { of }),
});
const release = (id: string): Command => ({ do: "release", id });
const renew = (id: string): Command => ({ do: "renew", id });
const resize = (id: string, units: number): Command => ({ do: "resize", id, units });
const setTo = (from: number, to: number): Command => ({ do: "capacity", from, to });
const chosen = (id: string): Command => ({ do: "claim", id, chosen: true });

const mutex = (what: string, before: Crossing["before"], far: Command, near?: Command): Crossing => ({
  ...{ what, capacity: 1, before, far },
  ...(near === undefined ? {} : { near }),
});
const three = (what: string, before: Crossing["before"], far: Command, near?: Command): Crossing => ({
  ...mutex(what, before, far, near),
  capacity: 3,
});
const readers = (what: string, before: Crossing["before"], far: Command, near?: Command): Crossing => ({
  ...mutex(what, before, far, near),
  capacity: READERS_MAX,
});

const CROSSINGS: readonly Crossing[] = [
  mutex("a claim and the holder's release", [[1, "h"]], claim("x"), release("h")),
  mutex("a try and the holder's release", [[1, "h"]], tries("x"), release("h")),
  mutex("two claims", [], claim("x"), claim("y")),
  mutex("two claims with one id", [], chosen("x"), chosen("x")),
  mutex("two claims with one id, behind a holder", [[1, "h"]], chosen("x"), chosen("x")),
  {
    ...mutex("a claim, and its release by force before it came", [], claim("x"), release("x")),
    // It came and was released before it was answered.
    also: ["gone", "released"],
  },
  mutex("a release and a claim", [[0, "f"]], release("f"), claim("y")),
  {
    ...mutex("a release, also by force", [[0, "f"]], release("f"), release("f")),
    // Between the removal of its node and its tombstone.
    also: ["released", "gone"],
  },
  mutex("a heartbeat and a release by force", [[0, "f"]], renew("f"), release("f")),
  mutex(
    "a waiter's heartbeat and the holder's release",
    [
      [1, "h"],
      [0, "w"],
    ],
    renew("w"),
    release("h"),
  ),
  mutex(
    "a waiter's heartbeat and its release by force",
    [
      [1, "h"],
      [0, "w"],
    ],
    renew("w"),
    release("w"),
  ),
  mutex(
    "a claim behind a waiter that is released by force",
    [
      [1, "h"],
      [0, "w"],
    ],
    claim("x"),
    release("w"),
  ),
  mutex("a listing and a hand-over", [[1, "h"]], { do: "inspect" }, release("h")),
  three("a large claim and a holder that becomes smaller", [[1, "h", 3]], claim("x", 2), resize("h", 1)),
  three("two changes of the capacity", [[1, "h", 2]], setTo(3, 5), setTo(3, 4)),
  three("a claim and a change of the capacity", [[1, "h"]], claim("x"), setTo(3, 2)),
  three("a try and a change of the capacity", [[1, "h"]], tries("x"), setTo(3, 2)),
  three(
    "a waiter's heartbeat and a capacity that is raised",
    [
      [1, "h", 2],
      [1, "i"],
      [0, "w", 2],
    ],
    renew("w"),
    setTo(3, 5),
  ),
  three("a capacity that is lowered, and a claim that is too large for it", [[1, "h"]], setTo(3, 1), claim("y", 3)),
  three("a capacity that is raised, and the last holder's release", [[1, "h"]], setTo(3, 5), release("h")),
  three("a listing and a change of the capacity", [[1, "h"]], { do: "inspect" }, setTo(3, 5)),
  readers("a writer that becomes a reader, and is released by force", [[0, "f", READERS_MAX]], resize("f", 1), {
    do: "release",
    id: "f",
  }),
  readers("a writer that becomes a reader, and a reader", [[0, "f", READERS_MAX]], resize("f", 1), claim("y")),
  readers("a reader behind a writer that becomes one", [[1, "h", READERS_MAX]], claim("x"), resize("h", 1)),
];

const BREAKS: readonly Crossing[] = [
  mutex("a claim", [[1, "h"]], claim("x")),
  mutex("a claim that holds at once", [], claim("x")),
  mutex("a try", [[1, "h"]], tries("x")),
  mutex("a release", [[0, "f"]], release("f")),
  mutex("a heartbeat", [[0, "f"]], renew("f")),
  mutex(
    "a waiter's heartbeat",
    [
      [1, "h"],
      [0, "w"],
    ],
    renew("w"),
  ),
  three("a permit", [[1, "h"]], claim("x", 2)),
  three(
    "a change of the capacity",
    [
      [1, "h", 2],
      [1, "w", 2],
    ],
    setTo(3, 4),
  ),
  readers(
    "a writer that becomes a reader",
    [
      [0, "f", READERS_MAX],
      [1, "w"],
    ],
    resize("f", 1),
  ),
];

type Pair = readonly [Engine, Engine];

/** The same on the engines under test and on the reference. */
async function perform(engine: Engine, name: string, capacity: number, command: Command): Promise<unknown> {
  const ref = "id" in command ? { name, id: `${name}-${command.id}` } : { name, id: "" };
  switch (command.do) {
    case "claim":
    case "try": {
      const { units = 1, of = capacity } = command;
      const wait = command.do === "claim";
      const request: ClaimRequest = { ...ref, units, capacity: of, leaseMs: 600_000, wait, owner };
      const answer = await engine.claim("chosen" in command ? { ...request, chosen: true } : request);
      return answer.kind === "mismatch" ? answer : answer.kind;
    }
    case "release":
      return engine.release(ref);
    case "renew": {
      const [answer] = await engine.renew([ref]);
      if (answer?.kind === "unknown") throw answer.cause;
      return answer?.kind === "gone" ? answer : answer?.kind;
    }
    case "resize":
      return engine.resize(ref, command.units);
    case "capacity":
      return engine.setCapacity(name, command.from, command.to);
    case "inspect":
      return shown(engine, name);
    default:
      return command satisfies never;
  }
}

async function shown(engine: Engine, name: string) {
  const state = await stateOf(engine, name);
  const ids = (all: readonly { readonly id: string; readonly units: number }[]) =>
    all.map(({ id, units }) => `${id.slice(name.length + 1)}: ${units}`);
  return state && { capacity: state.capacity, holders: ids(state.holders), waiters: ids(state.waiters) };
}

type Outcome = { readonly far: unknown; readonly near: unknown; readonly left: unknown };

/** Both orders, by the reference: what the far one is answered, the near one, and what is left. */
async function expectedOf(crossing: Crossing, name: string): Promise<readonly Outcome[]> {
  const { before, far, near, capacity } = crossing;
  const outcomes: Outcome[] = [];
  for (const farFirst of near === undefined ? [true] : [true, false]) {
    const store = memoryStore(new FakeClock());
    const pair: Pair = [memoryEngine(store), memoryEngine(store)];
    for (const [client, id, units = 1] of before) await perform(pair[client], name, capacity, claim(id, units));
    const first = farFirst ? await perform(pair[0], name, capacity, far) : undefined;
    const other = near && (await perform(pair[1], name, capacity, near));
    const last = farFirst ? first : await perform(pair[0], name, capacity, far);
    outcomes.push({ far: last, near: other, left: await shown(pair[0], name) });
  }
  return outcomes;
}

/** Whoever waits may be told a moment later that it holds: what counts is what is left. */
const WAITS = new Set<unknown>(["granted", "queued"]);
const fate = (command: Command | undefined, answer: unknown): unknown =>
  command?.do === "claim" && WAITS.has(answer) ? "in the queue" : answer;

const kindOf = (answer: unknown): unknown =>
  typeof answer === "object" && answer !== null && "kind" in answer ? answer.kind : answer;

/** Two clients in a folder of their own, one of them behind a gate, and what they were told. */
class Run {
  readonly clock = new FakeClock();
  readonly pair: Pair;
  readonly gate: PacketGate;
  /** By the kind of what was told, answered or pushed, and by the claim. */
  readonly told = new Set<string>();
  readonly #raw: WireClient;
  readonly #base: string;

  private constructor(gate: PacketGate, base: string, clock: FakeClock, pair: Pair, raw: WireClient) {
    [this.gate, this.#base, this.clock, this.pair, this.#raw] = [gate, base, clock, pair, raw];
    for (const engine of pair) {
      engine.listen((event) => {
        if ("id" in event) this.told.add(`${event.kind} ${event.id}`);
      });
    }
  }

  static async open(): Promise<Run> {
    const [gate, clock, base] = [await packetGate(server.port), new FakeClock(), `/${new SystemChance().id()}`];
    const clientOf = (port: number): WireClient =>
      new WireClient({
        hosts: [{ host: "127.0.0.1", port }],
        sessionTimeoutMs: SESSION_MS,
        tls: undefined,
        auth: undefined,
        acl: [{ perms: 31, scheme: "world", id: "anyone" }],
        clock,
        chance: new SystemChance(),
      });
    const [far, near] = [clientOf(gate.port), clientOf(server.port)];
    const engineOf = (client: WireClient) => ZooKeeperEngine.open(client, checkOptions({ clock, base }), true);
    return new Run(gate, base, clock, [await engineOf(far), await engineOf(near)], near);
  }

  async close(): Promise<void> {
    for (const engine of this.pair) await engine[Symbol.asyncDispose]();
    this.gate.close();
  }

  async do(client: 0 | 1, name: string, capacity: number, command: Command): Promise<unknown> {
    const answer = await perform(this.pair[client], name, capacity, command);
    if ("id" in command) this.told.add(`${String(kindOf(answer))} ${name}-${command.id}`);
    return answer;
  }

  /** As the core does it: what is not known is asked again. The clock moves for the pauses before a connection is tried. */
  async untilAnswered<T>(ask: () => Promise<T>): Promise<T> {
    for (let tried = 1; ; tried += 1) {
      try {
        return await ask();
      } catch (error) {
        if (tried === 2_000 || !/connection loss|being replaced|being claimed/.test(String(error))) throw error;
        await pause(2);
        await this.clock.advance(20);
      }
    }
  }

  async cleared(name: string, { before, far, near }: Crossing): Promise<void> {
    const named = [far, near].flatMap((one) => (one !== undefined && "id" in one ? [one.id] : []));
    for (const id of new Set([...before.map(([, one]) => one), ...named])) {
      for (const engine of this.pair) await this.untilAnswered(() => engine.release({ name, id: `${name}-${id}` }));
    }
    const { names = [] } = (await this.#raw.children(`${this.#base}/${name}`)) ?? {};
    expect(names, "no node is left").toEqual([]);
  }
}

/** False when it did not come to the nth packet. */
async function crossed(run: Run, crossing: Crossing, name: string, way: Way, nth: number): Promise<boolean> {
  const { before, far, near, capacity } = crossing;
  for (const [client, id, units = 1] of before) await run.do(client, name, capacity, claim(id, units));
  let reached = false;
  let standsStill = (): void => {};
  const still = new Promise<void>((resolve) => (standsStill = resolve));
  run.gate.hold(way, nth, () => {
    reached = true;
    standsStill();
  });
  const asking = run.do(0, name, capacity, far).catch((error: unknown) => error);
  await Promise.race([still, asking]);
  const breaks = near === undefined && reached;
  if (breaks) run.gate.cut();
  const other = near === undefined ? undefined : await run.do(1, name, capacity, near);
  run.gate.open();
  const first = await asking;
  const answer = first instanceof Error ? await run.untilAnswered(() => run.do(0, name, capacity, far)) : first;

  const where = `${crossing.what}, at packet ${nth} that is ${way}`;
  const left = await shown(run.pair[1], name);
  // What is asked again may be answered otherwise: it found what it had done itself.
  const outcome = ({ far: one, near: two, left: three }: Outcome) =>
    breaks ? { left: three } : { far: fate(far, one), near: fate(near, two), left: three };
  const orders = await expectedOf(crossing, name);
  const { also: [farAlso, nearAlso] = [] } = crossing;
  const allowed = [...orders, { far: farAlso, near: nearAlso, left: orders[0]?.left }].map(outcome);
  expect(allowed, where).toContainEqual(outcome({ far: answer, near: other, left }));

  // Longer than claims stand there before they are watched.
  await run.clock.advance(250);
  const holds = new Set(left?.holders.map((one) => one.split(":")[0]));
  const stands = new Set([...holds, ...(left?.waiters ?? []).map((one) => one.split(":")[0])]);
  for (const [client, id] of [...before, ...claimedBy(0, far), ...claimedBy(1, near)]) {
    const told = (kind: string): boolean => run.told.has(`${kind} ${name}-${id}`);
    if (holds.has(id)) {
      // After a break all are asked for.
      if (!breaks) await until(`${id} is told that it holds: ${where}`, () => told("granted") || told("wake"));
      const renewed = await run.untilAnswered(() => run.do(client, name, capacity, renew(id)));
      expect(renewed, `${id} holds: ${where}`).toBe("granted");
    } else if (!stands.has(id) && before.some(([, one]) => one === id)) {
      const isToldByAnswer = told("released") || told("gone") || told("revoked");
      if (!isToldByAnswer) await until(`${id} is told that it is lost: ${where}`, () => told("lost"));
    }
  }
  return reached;
}

/** Of a claim that both may make either one may be told. */
function claimedBy(client: 0 | 1, command: Command | undefined): Crossing["before"] {
  return command?.do === "claim" && command.chosen !== true ? [[client, command.id]] : [];
}

for (const [what, crossings] of [
  ["two clients cross", CROSSINGS],
  ["the wire breaks", BREAKS],
] as const) {
  test.concurrent.each(crossings.map((one) => [one.what, one] as const))(
    `${what}, at each packet: %s`,
    { timeout: RUN_MS },
    async (_, crossing) => {
      const run = await Run.open();
      try {
        for (const way of ["asked", "answered"] as const) {
          for (const isFollowed of [false, true]) {
            for (let [nth, reached] = [1, true]; reached; nth += 1) {
              const name = `${way}-${isFollowed}-${nth}`;
              // The queue of a name that is claimed again is followed.
              for (const id of isFollowed ? ["one", "two"] : []) {
                await run.do(0, name, crossing.capacity, claim(id));
                await run.pair[0].release({ name, id: `${name}-${id}`, tombstone: "never" });
              }
              reached = await crossed(run, crossing, name, way, nth);
              await run.cleared(name, crossing);
            }
          }
        }
      } finally {
        await run.close();
      }
    },
  );
}
