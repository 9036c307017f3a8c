import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { fenceTable } from "../src/fence/index.js";
import { pause, until } from "../test/servers/process.js";
import { Proxy } from "../test/servers/proxy.js";
import { Child, type ChildOptions, now } from "./child.js";
import type { Fault, FaultContext } from "./fault.js";
import { type Findings, judge, type Recorded, record } from "./judge.js";
import type { EngineRow, Rig } from "./rigs.js";

export type Run = {
  readonly findings: Findings;
  readonly recorded: Recorded;
  readonly faultAt: number;
  /** When the holder was stopped, where it was. */
  readonly stoppedAt: number | null;
  /** What the store still knew when everybody had left, and how long it took until that was nothing. */
  readonly leftBehind: string | null;
  readonly tookMs: number;
};

/** A held lock whose store goes on answering this long after the fault is kept. */
const KEPT_MS = 1000;
const STEP_MS = 40_000;

/** One engine, one fault: three contenders, a fenced and an unfenced resource, and what came of it. */
export async function runCell(
  engine: EngineRow,
  fault: Fault,
  rig: Rig,
  setting: Omit<Setting, "resource">,
): Promise<Run> {
  const startedAt = now();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-lab-"));
  const experiment = await Experiment.open(engine, fault, rig, { ...setting, resource: resourceIn(folder) });
  try {
    await experiment.run().catch((cause: unknown) => {
      throw new Error(`${String(cause)}; ${experiment.troubles()}`, { cause });
    });
    const { children, gone, faultAt } = experiment;
    const recorded = record([...children, ...gone]);
    const order = children[1]?.all("ready")[0]?.guarantees.order ?? "none";
    return {
      findings: judge(recorded, faultAt, { killed: fault.name === "kill", restarted: gone.length > 0 }, order),
      recorded,
      faultAt,
      stoppedAt: children[0]?.all("stopping")[0]?.at ?? null,
      leftBehind: experiment.leftBehind,
      tookMs: now() - startedAt,
    };
  } finally {
    await experiment.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function resourceIn(folder: string): string {
  const path = join(folder, "resource.db");
  const file = new Database(path);
  file.exec(fenceTable("sqlite"));
  file.exec("CREATE TABLE writes (place INTEGER PRIMARY KEY, token INTEGER, unfenced INTEGER, fenced INTEGER)");
  file.close();
  return path;
}

type Setting = Pick<ChildOptions, "library" | "name" | "resource" | "seed">;

class Experiment {
  readonly children: Child[] = [];
  /** Those that were ended and replaced. */
  readonly gone: Child[] = [];
  faultAt = 0;
  leftBehind: string | null = null;
  readonly #engine: EngineRow;
  readonly #fault: Fault;
  readonly #rig: Rig;
  readonly #setting: Setting;
  readonly #wires: Proxy[][] = [];

  private constructor(engine: EngineRow, fault: Fault, rig: Rig, setting: Setting) {
    this.#engine = engine;
    this.#fault = fault;
    this.#rig = rig;
    this.#setting = setting;
  }

  static async open(engine: EngineRow, fault: Fault, rig: Rig, setting: Setting): Promise<Experiment> {
    const experiment = new Experiment(engine, fault, rig, setting);
    try {
      await Promise.all([0, 1, 2].map((place) => experiment.#enter(place)));
      return experiment;
    } catch (error) {
      await experiment.close();
      throw error;
    }
  }

  /** A contender with a way of its own to each server. */
  async #enter(place: number, more: object = {}): Promise<void> {
    const { servers, clocks } = this.#rig;
    const wires = this.#wires[place] ?? (await Promise.all(servers.map(({ port }) => Proxy.to(port))));
    this.#wires[place] = wires;
    const leaseMs = place === 0 ? this.#leaseMs : this.#engine.leaseMs;
    const only = place === 0 && this.#fault.holderKnowsOnlyLeader ? await this.#rig.leader?.() : undefined;
    const ports = wires.filter((_, n) => only === undefined || n === only).map(({ port }) => port);
    const url = this.#engine.url(ports, this.#rig);
    const options = { ...this.#engine.options(leaseMs), ...more };
    // Where there is no server, those who wait decide whether a lease has ended.
    const env = servers.length === 0 && place > 0 ? clocks?.[0]?.env : undefined;
    const child = new Child({ ...this.#setting, seed: this.#setting.seed + place, url, options, leaseMs }, env);
    this.children[place] = child;
    await child.until("it is ready", () => child.all("ready").length > 0, STEP_MS);
  }

  get #leaseMs(): number {
    return this.#fault.leaseMs ?? this.#engine.leaseMs;
  }

  async run(): Promise<void> {
    const [holder, ...first] = this.children as [Child, ...Child[]];
    const fault = this.#fault;
    await this.#rig.promote?.stopFollowing();
    const context = this.#context(holder, first);
    fault.prepare?.(context);
    if (!fault.asksUnderFault) {
      await holder.ask("take");
      await holder.ask("write");
      await this.#queue(first);
    }
    const heal = await fault.run(context);
    const others = this.children.slice(1);
    if (fault.asksUnderFault || this.gone.length > 0) await this.#queue(others);
    const next = await this.#nextOrKept(holder, others, now());
    if (next === null) await holder.ask("write");
    else await this.#staleWrite(holder, next);
    await heal();
    // It would wait for the store that it knew.
    if (this.gone.length > 0) await holder.kill();
    if (next === null) await holder.ask("release");
    await this.#goOn(holder, others);
    await this.#look(others);
  }

  /** What each contender last complained of. */
  troubles(): string {
    const last = this.children.map((child, n) => `${n}: ${child.all("unavailable").at(-1)?.what ?? "nothing"}`);
    return `last troubles: ${last.join(" | ")}`;
  }

  #context(holder: Child, others: readonly Child[]): FaultContext {
    return {
      rig: this.#rig,
      leaseMs: this.#leaseMs,
      holder,
      others,
      breaks: this.#fault.expected[this.#engine.name] === "two holders",
      holderWires: this.#wires[0] ?? [],
      wiresTo: (server) => this.#wires.flatMap((wires) => wires[server] ?? []),
      faultBegins: () => (this.faultAt = now()),
      restartOthers: async (options) => {
        this.gone.push(...others);
        await Promise.all(others.map((other) => other.kill()));
        await Promise.all([this.#enter(1, options), this.#enter(2, options)]);
      },
    };
  }

  /** One after the other, so that their order is known, where the store keeps one. */
  async #queue(others: readonly Child[]): Promise<void> {
    for (const other of others) {
      const before = other.all("queued").length;
      void other.ask("take");
      const queues = other.all("ready")[0]?.guarantees.order === "fifo";
      const waits = (): boolean => (queues ? other.all("queued").length > before : other.all("asked").length > 0);
      await other.until("it waits", () => waits() || other.all("granted").length > 0, STEP_MS);
    }
  }

  /** Who got the lock next; null when its holder kept it. */
  async #nextOrKept(holder: Child, others: readonly Child[], since: number): Promise<Child | null> {
    let next: Child | undefined;
    const kept = (): boolean =>
      holder.all("lost").length === 0 && holder.all("renewed").some(({ at }) => at > since + KEPT_MS);
    await until(
      "somebody goes on",
      () => {
        next = others.find((other) => other.all("granted").some(({ at }) => at > this.faultAt));
        return next !== undefined || kept();
      },
      STEP_MS,
    );
    return next ?? null;
  }

  /** The next one writes, and only then the old one tries to: that is the moment that a lock alone cannot guard. */
  async #staleWrite(holder: Child, next: Child): Promise<void> {
    await next.ask("write");
    if (holder.ended || holder.all("stopping").length > 0) return;
    if (this.#fault.asksUnderFault) {
      // The late grant has arrived, and was believed or not.
      const arrives = this.faultAt + this.#leaseMs * 1.5 + 700;
      await pause(Math.max(0, arrives - now()));
    }
    await holder.ask("write");
  }

  /** Each of the others has its turn, and then the old holder may come back. */
  async #goOn(holder: Child, others: readonly Child[]): Promise<void> {
    const left = new Set(others);
    let before: Child | undefined;
    while (left.size > 0) {
      let turn: Child | undefined;
      await until(
        "the next has its turn",
        () => (turn = [...left].find((one) => one.all("granted").length > 0)) !== undefined,
        STEP_MS,
      );
      if (turn === undefined) return;
      left.delete(turn);
      await turn.ask("write");
      // Whoever had it before tries once more.
      for (const old of [holder, before]) if (old?.ended === false) await old.ask("write");
      await turn.ask("release");
      before = turn;
    }
    if (holder.ended) return;
    const ended = (): boolean => holder.all("lost").length + holder.all("releasing").length > 0;
    if (holder.all("granted").length > 0 && holder.all("asked").length === 1) {
      await holder.until("the old holder is told", ended, STEP_MS);
      await holder.ask("take");
    } else await holder.until("it has its turn", () => holder.all("granted").length > 0, STEP_MS);
    await holder.ask("write");
    await holder.ask("release");
  }

  async #look([other]: readonly Child[]): Promise<void> {
    const end = now() + 3 * this.#leaseMs + 5000;
    let seen: { holders: number; waiters: number } | undefined;
    for (;;) {
      seen = await other?.ask("look");
      if (seen?.holders === 0 && seen.waiters === 0) return;
      if (now() > end) break;
      await pause(100);
    }
    this.leftBehind = `${seen?.holders ?? "?"} holders, ${seen?.waiters ?? "?"} waiters`;
  }

  async close(): Promise<void> {
    const leaving = this.children.map((child) => Promise.race([child.ask("leave"), pause(3000)]).catch(() => {}));
    await Promise.all(leaving);
    await Promise.all(this.children.map((child) => child.kill()));
    await Promise.all(this.#wires.flat().map((wire) => wire.close()));
    for (const clock of this.#rig.clocks ?? []) clock.moveTo(0);
  }
}
