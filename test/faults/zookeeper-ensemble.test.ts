import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import type { ClaimRequest } from "../../src/core/engine.js";
import { isRefusal } from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import type { Locks } from "../../src/locks.js";
import { until } from "../servers/process.js";
import type { Proxy } from "../servers/proxy.js";
import {
  type Ensemble,
  fourLetters,
  startEnsemble,
  untilLeader,
  type Wire,
  type ZooKeeperSetting,
} from "../servers/zookeeper.js";
import { renewed } from "./rig.js";
import { claimOf, engineOn, locksOn, proxyTo, rawOn, urlOf } from "./zookeeper-rig.js";

const LONG_MS = 180_000;

async function ensembleOf(setting: ZooKeeperSetting = {}, wire?: Wire): Promise<Ensemble> {
  const ensemble = await startEnsemble(setting, wire);
  onTestFinished(() => ensemble.stop());
  await untilLeader(ensemble);
  return ensemble;
}

/** The ports of the leader and of a follower, and what is between them. The follower notices a silence after 20 s. */
async function withLoneFollower(): Promise<{ near: number; far: number; between: Proxy }> {
  const wires = new Map<string, Proxy>();
  const wire: Wire = async (from, to, port, use) => {
    if (use === "elect") return port;
    const proxy = await proxyTo(port);
    wires.set(`${from}-${to}`, proxy);
    return proxy.port;
  };
  const ensemble = await ensembleOf({ lines: ["syncLimit=40"] }, wire);
  const leader = await untilLeader(ensemble);
  const alone = (leader + 1) % 3;
  const [near = 0, far = 0] = [ensemble.ports[leader], ensemble.ports[alone]];
  const between = wires.get(`${alone}-${leader}`);
  assert.ok(between !== undefined && between.connections > 0, "the follower does not follow through the proxy");
  return { near, far, between };
}

/** Several clients read, wait and write under one mutex; a lost update shows in the sum, two at once in `inside`. */
class Load {
  sum = 0;
  done = 0;
  readonly tokens: number[] = [];
  #inside: Hold | null = null;
  #overlaps = 0;
  #stopped = false;
  readonly #running: Promise<void>[];

  constructor(clients: readonly Locks[], name: string) {
    this.#running = clients.map((locks) => this.#run(locks, name));
  }

  get overlaps(): number {
    return this.#overlaps;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#running);
  }

  async #run(locks: Locks, name: string): Promise<void> {
    while (!this.#stopped) {
      try {
        const hold = await locks.mutex(name).acquire({ waitMs: 30_000 });
        // Whoever still believes to hold it, by its own clock, overlaps.
        if (this.#inside !== null && this.#inside.remainingMs > 0 && this.#inside !== hold) this.#overlaps += 1;
        this.#inside = hold;
        const before = this.sum;
        await sleep(5);
        hold.throwIfLost();
        this.sum = before + 1;
        this.tokens.push(hold.token);
        this.done += 1;
        await hold.release();
      } catch {
        // Lost, or nobody answered: what it did not finish does not count.
        await sleep(50);
      }
    }
  }
}

const growing = (tokens: readonly number[]): boolean =>
  tokens.every((token, index) => index === 0 || token > (tokens[index - 1] ?? 0));

test(
  "the leader, then a follower is killed under load: nobody overlaps, tokens grow, work goes on",
  async () => {
    const ensemble = await ensembleOf();
    const clients = await Promise.all(
      Array.from({ length: 4 }, () =>
        locksOn(urlOf(...ensemble.ports), { sessionTimeoutMs: 6000, leaseMs: 3000, callTimeoutMs: 2000 }),
      ),
    );
    expect(clients[0]?.guarantees).toMatchObject({
      exclusion: "consensus",
      crashRelease: "session",
      token: "monotonic",
    });
    const load = new Load(clients, "load");
    const progress = async (what: string): Promise<void> => {
      const { done } = load;
      await until(`work goes on ${what}`, () => load.done > done + 20, 60_000);
    };
    await progress("at first");
    const leader = await untilLeader(ensemble);
    const first = ensemble.servers[leader];
    await first?.running.end();
    await progress("without the leader");
    await first?.restart();
    const follower = ensemble.servers[((await untilLeader(ensemble)) + 1) % 3];
    await follower?.running.end();
    await progress("without a follower");
    await follower?.restart();
    await progress("with all three");
    await load.stop();
    expect(load.overlaps).toBe(0);
    expect(load.sum).toBe(load.done);
    expect(growing(load.tokens)).toBe(true);
  },
  LONG_MS,
);

test(
  "the majority is lost for less than a session: holds end or survive, and never overlap; then it is as before",
  async () => {
    const ensemble = await ensembleOf();
    const settings = { sessionTimeoutMs: 8000, leaseMs: 4000, callTimeoutMs: 1000 };
    const [a, b] = [
      await locksOn(urlOf(...ensemble.ports), settings),
      await locksOn(urlOf(...ensemble.ports), settings),
    ];
    const told: string[] = [];
    a.on("jeopardy", () => told.push("jeopardy"));
    a.on("lost", () => told.push("lost"));
    const hold = await a.mutex("majority").acquire();
    const next = b.mutex("majority").acquire();
    const killed = ensemble.servers.slice(0, 2);
    await Promise.all(killed.map((server) => server.running.end()));
    await until("told", () => told.includes("lost"), 20_000);
    // A process that stood still at that moment finds out about both at once.
    expect([["jeopardy", "lost"], ["lost"]]).toContainEqual(told);
    expect(hold.state).toBe("lost");
    await Promise.all(killed.map((server) => server.restart()));
    const granted = await next;
    expect(granted.token).toBeGreaterThan(hold.token);
    await granted.release();
    const again = await a.mutex("majority").acquire({ waitMs: 30_000 });
    again.throwIfLost();
    await again.release();
  },
  LONG_MS,
);

test.each(["", ", and resumed the session just before"])(
  "pitfall 51: a follower cut off from the leader: its client is told before the next holder is granted%s",
  async (resumed) => {
    const { near, far, between } = await withLoneFollower();
    const settings = { sessionTimeoutMs: 4000, leaseMs: 4000, callTimeoutMs: 3000 };
    const way = await proxyTo(far);
    const holder = await locksOn(urlOf(way.port), settings);
    const other = await locksOn(urlOf(near), settings);
    const raw = await rawOn(far);
    const told: string[] = [];
    holder.on("jeopardy", () => told.push("jeopardy"));
    holder.on("lost", () => told.push("lost"));
    const lost = await holder.mutex("cut off").acquire();
    // Heartbeats are confirmed more than once.
    await renewed(holder, 2);
    lost.throwIfLost();
    const [node = ""] = (await raw.children("/locks/cut%20off".replace("%20", " ")))?.names ?? [];
    expect(node).toContain(lost.id);
    const waiting = other.mutex("cut off").acquire();
    if (resumed !== "") {
      way.point(far);
      await renewed(holder, 1);
    }
    between.stall();
    const next = await waiting;
    const before = lost.state;
    // The follower still shows the dead session's node, and answers reads: believing it would be believing too long.
    const shown = await raw.exists(`/locks/cut off/${node}`);
    expect(before).toBe("lost");
    // A process that stood still at that moment finds out about both at once.
    expect([["jeopardy", "lost"], ["lost"]]).toContainEqual(told);
    expect(shown).not.toBeNull();
    expect(next.token).toBeGreaterThan(lost.token);
    await next.release();
  },
  LONG_MS,
);

test(
  "a follower that lags behind is not asked who is there: what another client was told counts",
  async () => {
    const { near, far, between } = await withLoneFollower();
    const [fast, slow] = [await engineOn(urlOf(near)), await engineOn(urlOf(far))];
    const [mine, again, refused, theirs, seen] = ["mine", "again", "refused", "theirs", "seen"].map((name) =>
      claimOf(name),
    ) as [ClaimRequest, ClaimRequest, ClaimRequest, ClaimRequest, ClaimRequest];
    for (const claim of [mine, again, refused]) expect((await slow.claim(claim)).kind).toBe("granted");
    between.stall();
    for (const { name, id } of [mine, again, refused])
      expect(await fast.release({ name, id, tombstone: "never" })).toBe("released");
    for (const claim of [theirs, seen]) expect((await fast.claim(claim)).kind).toBe("granted");
    const answers = Promise.all([
      slow.resize(mine, 1),
      slow.resize(refused, 2),
      slow.claim(again),
      slow.resize(seen, 1),
      slow.release({ name: theirs.name, id: theirs.id, tombstone: "never" }),
    ]);
    await sleep(300);
    between.heal();
    expect(await answers).toEqual(["gone", "gone", { kind: "gone" }, "refused", "released"]);
  },
  LONG_MS,
);

test(
  "what is left of the servers only lets read (readonlymode.enabled): nothing is refused for good, and then it is as before",
  async () => {
    const ensemble = await ensembleOf({ properties: { "readonlymode.enabled": "true" } });
    const engine = await engineOn(urlOf(...ensemble.ports), { sessionTimeoutMs: 10_000 });
    const [claim, next] = [claimOf("only read"), claimOf("only read")];
    expect((await engine.claim(claim)).kind).toBe("granted");
    const [left, ...killed] = ensemble.servers;
    await Promise.all(killed.map((server) => server.running.end()));
    await until(
      "it only lets read",
      async () => (await fourLetters(left?.port ?? 0, "srvr").catch(() => "")).includes("Mode: read-only"),
      60_000,
    );
    for (const call of [engine.renew([claim]), engine.claim(next), engine.release({ ...claim, tombstone: "never" })]) {
      const error = await call.then(
        () => null,
        (cause: unknown) => cause,
      );
      expect(error).toBeInstanceOf(Error);
      expect(isRefusal(error)).toBe(false);
    }
    await Promise.all(killed.map((server) => server.restart()));
    await until(
      "it is as before",
      async () => {
        const answer = await engine.claim(claimOf("as before")).catch(() => null);
        return answer?.kind === "granted" || answer?.kind === "queued";
      },
      60_000,
    );
  },
  LONG_MS,
);
