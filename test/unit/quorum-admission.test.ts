import { describe, expect, test } from "vitest";
import type { Engine, EngineEvent } from "../../src/core/engine.js";
import { ClosedError, EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import type { Guarantees } from "../../src/core/guarantees.js";
import type { InspectFilter } from "../../src/core/inspect.js";
import type { ServerInfo } from "../../src/core/server-info.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { Admission } from "../../src/engines/quorum/admit.js";
import { QuorumNotReached, type QuorumOptions, quorumEngine } from "../../src/engines/quorum/index.js";
import type { Member } from "../../src/engines/quorum/member.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";

/** Which servers may vote together, what is told of them, and what follows for the quorum. */

type Say = {
  readonly info?: (() => Promise<ServerInfo>) | null;
  readonly guarantees?: Partial<Guarantees>;
  readonly leaseMinMs?: number;
  readonly resends?: boolean;
};

/** A member as it describes itself. */
class Described {
  readonly engine: Engine;
  disposed = 0;
  wake: (event: EngineEvent) => void = () => {};

  constructor(clock: FakeClock, { info, guarantees, leaseMinMs = 1, resends = false }: Say = {}) {
    const inner = memoryEngine(memoryStore(clock));
    const serverInfo = info ?? (() => (inner as Required<Engine>).serverInfo());
    this.engine = {
      kind: "described",
      guarantees: { ...inner.guarantees, ...guarantees },
      leaseMinMs,
      resends,
      cells: null,
      claim: (request) => inner.claim(request),
      release: (request) => inner.release(request),
      renew: (requests) => inner.renew(requests),
      resize: (ref, units) => inner.resize(ref, units),
      setCapacity: (name, from, to) => inner.setCapacity(name, from, to),
      listen: (listener) => {
        this.wake = listener;
        return () => (this.wake = () => {});
      },
      inspect: (filter) => inner.inspect(filter),
      ...(info === null ? {} : { serverInfo }),
      [Symbol.asyncDispose]: async () => void (this.disposed += 1),
    };
  }
}

const says = (info: ServerInfo): Say => ({ info: async () => info });

/** A quorum of these, and what it warns of. */
async function quorumOf(
  said: readonly Say[],
  options: QuorumOptions = {},
): Promise<{ engine: Engine; members: Described[]; warnings: string[]; clock: FakeClock }> {
  const clock = new FakeClock();
  const members = said.map((say) => new Described(clock, say));
  const named = members.map(({ engine }, n) => ({ name: "abcdefg".charAt(n), engine }));
  const engine = await quorumEngine(named, { clock, ...options });
  const warnings: string[] = [];
  engine.listen((event) => void (event.kind === "warning" && warnings.push(event.message)));
  await settle();
  return { engine, members, warnings, clock };
}

describe("which servers may vote together", () => {
  test("the same server twice is refused with both names; servers that do not say who they are, are not compared", async () => {
    const same = quorumOf([says({ server: "x" }), says({ server: "y" }), says({ server: "x" })]);
    await expect(same).rejects.toBeInstanceOf(EngineRefusedError);
    await expect(same).rejects.toThrow(/c and a are the same server\. Each member must fail by itself/);
    expect((await quorumOf([says({ server: "" }), says({ server: "" }), {}])).warnings).toEqual([]);
  });

  test("a replica is refused", async () => {
    const refused = quorumOf([{}, says({ server: "x", replica: true }), {}]);
    await expect(refused).rejects.toBeInstanceOf(EngineRefusedError);
    await expect(refused).rejects.toThrow(/b is a replica\. Name its primary instead/);
    expect((await quorumOf([{}, says({ server: "x", replica: false }), {}])).warnings).toEqual([]);
  });

  test("a store that will not say who it is takes part; one that is away does not", async () => {
    const refusal: Say = { info: () => Promise.reject(new EngineRefusedError("x", "No.", new Error("NOPERM"))) };
    expect((await quorumOf([{ info: null }, refusal, {}])).warnings).toEqual([]);
    const away: Say = {
      info: () => Promise.reject(new EngineUnavailableError("x", "asking", new Error("ECONNREFUSED"))),
    };
    expect((await quorumOf([{}, away, {}])).warnings).toEqual(["quorum member b is away: ECONNREFUSED"]);
  });

  test("nodes of clusters and servers with replicas are warned of, each by name", async () => {
    const { warnings } = await quorumOf([
      says({ server: "x", cluster: true }),
      says({ server: "y", replicas: 1 }),
      says({ server: "z", cluster: false, replicas: 0 }),
    ]);
    expect(warnings).toEqual([
      "quorum member a is a node of a cluster, which may move its locks or replace it: its vote can be lost",
      "quorum member b has replicas: one that is promoted without the last grants votes twice",
    ]);
  });

  test.each([
    [2, ["a quorum of 2 members stops as soon as one of them is away: use three or five"]],
    [3, []],
    [4, ["a quorum of 4 members survives 1 failures, as one of 3 does: use an odd number"]],
    [6, ["a quorum of 6 members survives 2 failures, as one of 5 does: use an odd number"]],
    [7, []],
  ])("what %i members are good for is told", async (count, told) => {
    expect((await quorumOf(Array.from({ length: count }, () => ({})))).warnings).toEqual(told);
  });

  test("restartGuardMs: members that cannot tell when they started are warned of, unless they survive a restart", async () => {
    const members: Say[] = [
      says({ server: "x" }),
      { info: null },
      says({ server: "y", upMs: 5 }),
      { ...says({ server: "z" }), guarantees: { survivesRestart: true } },
      { info: null, guarantees: { survivesRestart: true } },
    ];
    const told = (name: string): string =>
      `quorum member ${name} cannot tell when it started: restartGuardMs does not watch over it`;
    expect((await quorumOf(members, { restartGuardMs: 1 })).warnings).toEqual([told("a"), told("b")]);
    expect((await quorumOf(members)).warnings).toEqual([]);
  });

  test("another server behind the same address is looked at when the member comes back, and again until it may vote", async () => {
    let server = "x";
    const { members, warnings, engine } = await quorumOf([
      { info: async () => ({ server }) },
      says({ server: "y" }),
      says({ server: "z" }),
    ]);
    const back = async (as: string): Promise<string[]> => {
      server = as;
      warnings.length = 0;
      members[0]?.wake({ kind: "wake" });
      await settle();
      return warnings;
    };
    expect(await back("x"), "it need not be another one than itself").toEqual([]);
    expect(await back("y")).toEqual([expect.stringMatching(/a has no vote: .*a and b are the same server/)]);
    let left = "";
    for (const { name, vote } of await votesOn(engine)) if (name === "a") left = vote;
    expect(left).toMatch(/same server/);
    expect(await back("w")).toEqual([]);
    for (const { vote } of await votesOn(engine)) expect(vote).toMatch(/^busy/);
    await engine[Symbol.asyncDispose]();
  });

  test.each([
    ["is away", new EngineUnavailableError("x", "asking", new Error("ECONNREFUSED"))],
    ["is away, as its client says", Object.assign(new Error("reset"), { code: "ECONNRESET" })],
    ["throws what is no error", "away"],
  ])("a member that %s when it is looked at again keeps its vote", async (_what, error) => {
    let failing = false;
    const { members, warnings, engine } = await quorumOf([
      { info: async () => (failing ? Promise.reject(error) : { server: "x" }) },
      {},
      {},
    ]);
    failing = true;
    members[0]?.wake({ kind: "wake" });
    await settle();
    expect(warnings).toEqual([]);
    for (const { vote } of await votesOn(engine)) expect(vote).toMatch(/^busy/);
  });

  test("a wake about one claim is passed on with its name and looks at nobody; other events say no more than that", async () => {
    let looked = 0;
    const { members, engine } = await quorumOf([
      {
        info: async () => {
          looked += 1;
          return { server: "x" };
        },
      },
      {},
      {},
    ]);
    const heard: EngineEvent[] = [];
    engine.listen((event) => heard.push(event));
    const tell = (event: EngineEvent): void => members[0]?.wake(event);
    tell({ kind: "wake", name: "n" });
    tell({ kind: "wake", name: "n", id: "i" });
    tell({ kind: "granted", name: "n", id: "i", token: 1, floor: 1 });
    tell({ kind: "lost", name: "n", id: "i" });
    tell({ kind: "warning", message: "hot" });
    await settle();
    expect(looked, "when it was opened").toBe(1);
    const wake = { kind: "wake", name: "n", id: "i" };
    // A name or an id that there is none of is not there as undefined either.
    expect(heard).toStrictEqual([
      { kind: "wake", name: "n" },
      wake,
      wake,
      wake,
      { kind: "warning", message: "a: hot" },
    ]);
    tell({ kind: "wake" });
    await settle();
    expect(heard.at(-1)).toStrictEqual({ kind: "wake" });
    expect(looked).toBe(2);
  });
});

let ids = 0;
const claim = (name: string): Parameters<Engine["claim"]>[0] => ({
  name,
  id: `claim-${(ids += 1)}`,
  units: 1,
  capacity: 1,
  leaseMs: 10_000,
  wait: false,
  owner: { client: "c", host: "h", pid: 1 },
});

/** How each member votes on a lock that somebody holds. */
async function votesOn(engine: Engine): Promise<{ name: string; vote: string }[]> {
  const holder = claim("held");
  await engine.claim(holder);
  const answer = await engine.claim(claim("held"));
  if (answer.kind !== "busy") throw new Error(answer.kind);
  const error = answer.why?.();
  await engine.release(holder);
  if (!(error instanceof QuorumNotReached)) throw new Error(String(error));
  return error.votes.map(({ member, vote }) => ({ name: member, vote }));
}

describe("what follows for the quorum", () => {
  test("its guarantees are those of its weakest member", async () => {
    const strong: Say = { guarantees: { token: "monotonic", crashRelease: "lease", survivesRestart: true } };
    const weak = (guarantees: Partial<Guarantees>): Say => ({ guarantees: { ...strong.guarantees, ...guarantees } });
    const of = async (...said: Say[]): Promise<Guarantees> => (await quorumOf(said)).engine.guarantees;
    expect(await of(strong, strong, strong)).toEqual({
      exclusion: "quorum-with-clocks",
      token: "monotonic-if-clocks",
      order: "fifo-while-one-member-answers",
      wake: "push",
      crashRelease: "lease",
      survivesRestart: true,
    });
    expect(await of(strong, weak({ token: "none" }), strong)).toMatchObject({ token: "none" });
    expect(await of(strong, weak({ crashRelease: "session" }), strong)).toMatchObject({ crashRelease: "session" });
    expect(await of(strong, weak({ survivesRestart: false }), strong)).toMatchObject({ survivesRestart: false });
    const away: Say = { ...strong, info: () => Promise.reject(new Error("away")) };
    expect(await of(strong, strong, away), "of one that is away nothing is known").toMatchObject({
      survivesRestart: false,
    });
  });

  test("the longest shortest lease counts, and any member that resends", async () => {
    const { engine } = await quorumOf([{ leaseMinMs: 5 }, { leaseMinMs: 2000 }, { leaseMinMs: 100 }]);
    expect(engine.leaseMinMs).toBe(2000);
    expect(engine.resends).toBe(false);
    expect((await quorumOf([{}, { resends: true }, {}])).engine.resends).toBe(true);
    expect((await quorumOf([{ leaseMinMs: 0.5 }, { leaseMinMs: 0.5 }])).engine.leaseMinMs).toBe(1);
  });

  test("it is closed once, with the members that it opened; those that were handed in stay open", async () => {
    const clock = new FakeClock();
    const [mine, opened] = [new Described(clock), new Described(clock)];
    const engine = await quorumEngine(
      [
        { name: "mine", engine: mine.engine },
        { name: "opened", open: async () => opened.engine },
        new Described(clock).engine,
      ],
      { clock },
    );
    await Promise.all([engine[Symbol.asyncDispose](), engine[Symbol.asyncDispose]()]);
    expect([mine.disposed, opened.disposed]).toEqual([0, 1]);
    const ref = claim("closed");
    const calls = {
      claim: () => engine.claim(ref),
      release: () => engine.release(ref),
      renew: () => engine.renew([ref]),
      resize: () => engine.resize(ref, 1),
      setCapacity: () => engine.setCapacity("closed", 1, 1),
      inspect: async () => {
        for await (const state of engine.inspect()) expect.fail(state.name);
      },
    };
    for (const [name, call] of Object.entries(calls)) {
      await expect(call(), name).rejects.toBeInstanceOf(ClosedError);
    }
    expect(clock.pending).toBe(0);
  });

  test("without a majority it does not open: every vote is told, and what was opened is closed", async () => {
    const clock = new FakeClock();
    const one = new Described(clock);
    const away = { name: "b", open: () => Promise.reject(new Error("ECONNREFUSED.")) };
    const opening = quorumEngine([{ name: "a", open: async () => one.engine }, away, { ...away, name: "c" }], {
      clock,
    });
    const error: unknown = await opening.catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(EngineUnavailableError);
    expect((error as Error).cause).toMatchObject({
      message:
        "quorum not reached (2 of 3 needed): b failed (ECONNREFUSED) 0 ms, c failed (ECONNREFUSED) 0 ms, a open 0 ms",
    });
    expect(one.disposed).toBe(1);
    expect(clock.pending, "nothing is tried again").toBe(0);
  });

  test("what is listed needs a majority; the error tells who answered, and not what", async () => {
    const clock = new FakeClock();
    const away = (): Engine => ({
      ...new Described(clock).engine,
      inspect: () => {
        throw new Error("cut off");
      },
    });
    const engine = await quorumEngine([new Described(clock).engine, away(), away()], { clock });
    await engine.claim(claim("listed"));
    const listing = async (): Promise<void> => {
      for await (const state of engine.inspect()) expect.fail(state.name);
    };
    await expect(listing()).rejects.toThrow(
      "quorum not reached (2 of 3 needed): described 2 failed (cut off) 0 ms, described 3 failed (cut off) 0 ms, described 1 answered 0 ms",
    );
  });

  test("a listing of all names may take long; one name is a vote like any other", async () => {
    const clock = new FakeClock();
    const slow = (): Engine => {
      const { engine } = new Described(clock);
      return {
        ...engine,
        async *inspect(filter) {
          await new Promise<void>((resolve) => clock.after(30_000, resolve));
          yield* engine.inspect(filter);
        },
      };
    };
    const engine = await quorumEngine([slow(), slow(), slow()], { clock });
    await engine.claim({ ...claim("slow"), leaseMs: 100_000 });
    const names = async (filter: InspectFilter): Promise<string[]> => {
      const found: string[] = [];
      for await (const { name } of engine.inspect(filter)) found.push(name);
      return found;
    };
    const listing = Promise.allSettled([names({}), names({ prefix: "s" }), names({ name: "slow" })]);
    await clock.advance(30_000);
    expect(await listing).toMatchObject([
      { value: ["slow"] },
      { value: ["slow"] },
      { reason: expect.objectContaining({ message: expect.stringContaining("timed out after 50 ms") }) },
    ]);
    await engine[Symbol.asyncDispose]();
  });

  test("a member that is refused is closed again if the quorum opened it", async () => {
    const clock = new FakeClock();
    const replica = new Described(clock, says({ server: "r", replica: true }));
    const given = { name: "given", engine: replica.engine };
    const opened = { name: "opened", open: async () => replica.engine };
    const rest = [new Described(clock).engine, new Described(clock).engine];
    await expect(quorumEngine([given, ...rest], { clock })).rejects.toThrow(/replica/);
    expect(replica.disposed).toBe(0);
    await expect(quorumEngine([opened, ...rest], { clock })).rejects.toThrow(/replica/);
    expect(replica.disposed).toBe(1);
  });
});

test("a member that does not say which server it is goes by its name", async () => {
  const clock = new FakeClock();
  const admission = new Admission(0, () => {});
  for (const [server, identity] of [
    ["", "one"],
    ["server", "server"],
  ] as const) {
    const { engine } = new Described(clock, { info: async () => ({ server }) });
    const member = { name: "one", identity: "" } as Member;
    await admission.admit(member, engine);
    expect(member.identity).toBe(identity);
  }
});
