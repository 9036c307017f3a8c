import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "../../src/connect.js";
import { StaleTokenError } from "../../src/core/errors.js";
import { TOMBSTONE_MS } from "../../src/core/limits.js";
import { memoryFence } from "../../src/fence/memory.js";
import type { History } from "../../src/testing/history.js";
import { pause, until } from "../../test/servers/process.js";
import { Proxy } from "../../test/servers/proxy.js";
import { now } from "../child.js";
import type { Rig } from "../rigs.js";
import { Judge, type Told } from "./judge.js";
import { type Ask, type Footprint, Member } from "./member.js";
import { FAULTS, type FaultKind, type Planned, plan } from "./schedule.js";
import { type Counts, familyOf, occupyFor, portsOf, type Store } from "./stores.js";

export type SoakOptions = {
  readonly seed: number;
  readonly ms: number;
  readonly workers: number;
  readonly library: string;
  /** Where a history that breaks a rule is written. */
  readonly out: string;
  readonly progress: (line: string) => void;
  readonly interrupted: AbortSignal;
};

/** What is used at rest: by the process that lives from the beginning to the end, and in the store. */
export type Level = { readonly process: Footprint; readonly store: Counts };

export type Result = {
  readonly store: string;
  readonly seconds: number;
  readonly counts: Readonly<Judge["counts"]>;
  readonly faults: Readonly<Record<FaultKind, number>>;
  readonly violations: readonly { readonly rule: string; readonly what: string }[];
  /** Before anybody came, at the start of the steady state, at the end, and when everybody had left and tombstones had ended. */
  readonly before: Counts;
  readonly start: Level | null;
  readonly end: Level | null;
  readonly after: Counts | null;
  readonly saved: readonly string[];
};

const CLIENTS = 2;
const TASKS = 3;
/** As in `worker.mjs`: the names that live as long as the run, of each kind of lock. */
const KEPT = 4;
const KINDS = 3;
const LATE_MS = 500;
/** What happened so long ago has been heard. */
const HEARD_MS = 2000;
const JUDGE_EVERY_MS = 2000;
const EPOCH_MS = 10_000;
/** A run shorter than this does not wait for tombstones to end. */
const LONG_MS = 60_000;
const SAVED_MAX = 10;
/** How long a pool keeps a connection that nobody uses, and a little. */
const POOLS_MS = 12_000;
/** Nothing that a resting process still does is worth more than this. */
const HEAP_SLACK = { factor: 1.25, bytes: 3 * 2 ** 20 };
/** Pools breathe, and a library may still keep what it has replaced; a leak of one at each of some hundred faults is more. */
const SPARE_HANDLES = 16;

/** One store, from its first server to the last look at what is left. */
export class Soak {
  readonly #store: Store;
  readonly #options: SoakOptions;
  readonly #interrupted: Promise<void>;
  readonly #judge = new Judge();
  readonly #faults = Object.fromEntries(FAULTS.map((kind) => [kind, 0])) as Record<FaultKind, number>;
  readonly #fence = memoryFence({ aheadMs: Infinity });
  readonly #wires: Proxy[][] = [];
  readonly #members: Member[] = [];
  /** Every process has a number of its own, also one that takes another's place. */
  #clients = 0;
  #epoch = 0;
  #saved: string[] = [];
  /** What was done, for whoever reads a history. */
  readonly #done: { readonly at: number; readonly kind: FaultKind; readonly target: string; readonly part: number }[] =
    [];
  /** What is being done to a process or a server, each one thing at a time. */
  readonly #hurt = new Set<string>();
  readonly #healing = new Set<Promise<void>>();

  constructor(store: Store, options: SoakOptions) {
    this.#store = store;
    this.#interrupted = aborted(options.interrupted);
    this.#options = options;
  }

  async run(): Promise<Result> {
    const { row } = this.#store;
    const rig: Rig = row === null ? { servers: [], stop: async () => {} } : await row.start("plain");
    const { ms, interrupted } = this.#options;
    const levels: { before: Counts; start: Level | null; end: Level | null; after: Counts | null } = {
      before: {},
      start: null,
      end: null,
      after: null,
    };
    const beats = [this.#every(JUDGE_EVERY_MS, () => this.#check()), this.#every(EPOCH_MS, () => this.#nextEpoch())];
    let loadMs = 0;
    try {
      levels.before = await this.#firstCounts(rig);
      await Promise.all(Array.from({ length: this.#workers }, (_, place) => this.#enter(place, rig)));
      const faults = plan(this.#options.seed, this.#store.faults, {
        leaseMs: this.#store.leaseMs,
        workers: this.#workers,
        servers: rig.servers.length,
      });
      const warmUpMs = Math.min(ms / 5, 60_000);
      for (const phaseMs of [warmUpMs, ms - warmUpMs]) {
        const from = now();
        await this.#goOn(rig, faults, phaseMs);
        loadMs += now() - from;
        if (interrupted.aborted) break;
        const level = await this.#atRest(rig);
        if (levels.start === null) levels.start = level;
        else levels.end = level;
      }
      await this.#leave();
      // Silent connections have no end otherwise: a server would keep them.
      await Promise.all(this.#wires.flat().map((wire) => wire.close()));
      this.#wires.length = 0;
      if (!interrupted.aborted) levels.after = await this.#whatIsLeft(rig, levels.before);
      this.#flat(levels.start, levels.end);
    } finally {
      beats.forEach((beat) => clearInterval(beat));
      await Promise.all(this.#members.filter(({ exit }) => exit === null).map((member) => member.kill()));
      await Promise.all(this.#wires.flat().map((wire) => wire.close()));
      await rig.stop();
    }
    const { counts, violations } = this.#judge;
    const seconds = Math.max(1, loadMs) / 1000;
    return {
      store: this.#store.name,
      seconds,
      counts,
      faults: this.#faults,
      violations,
      ...levels,
      saved: this.#saved,
    };
  }

  get #workers(): number {
    return this.#store.row === null ? 1 : this.#options.workers;
  }

  #every(ms: number, run: () => void): NodeJS.Timeout {
    return setInterval(run, ms).unref();
  }

  /** What is in the store before anybody uses it, but for what the first of all connections makes. */
  async #firstCounts(rig: Rig): Promise<Counts> {
    if (this.#store.row === null) return {};
    await (await connect(this.#url(portsOf(rig), rig), this.#connectOptions)).close();
    return this.#store.count(rig);
  }

  #url(ports: readonly number[], rig: Rig): string {
    return this.#store.row?.url(ports, rig) ?? "memory:soak";
  }

  get #connectOptions(): object {
    const { row, leaseMs } = this.#store;
    return row?.options(leaseMs) ?? {};
  }

  /** A process with a way of its own to each server. */
  async #enter(place: number, rig: Rig): Promise<void> {
    const wires = this.#wires[place] ?? (await Promise.all(rig.servers.map(({ port }) => Proxy.to(port))));
    this.#wires[place] = wires;
    const client = (this.#clients += 1);
    const ports = wires.map(({ port }) => port);
    const member = new Member(
      client,
      {
        library: this.#options.library,
        url: this.#url(ports, rig),
        options: this.#connectOptions,
        seed: this.#options.seed + 1000 * client,
        leaseMs: this.#store.leaseMs,
        clients: this.#store.row === null ? 4 * CLIENTS : CLIENTS,
        tasks: TASKS,
        stem: "soak",
      },
      (told) => this.#hear(member, told),
    );
    this.#members[place] = member;
    member.say({ say: "epoch", epoch: this.#epoch });
    void member.exited.then(() => this.#ended(member));
    await until(
      `${this.#store.title} is connected to`,
      () => member.guarantees !== null || member.exit !== null,
      // Only what hangs runs into this: with many processes waiting for two cores, one takes a minute to start.
      300_000,
    );
  }

  #hear(member: Member, told: Told | Ask): void {
    if (told.event === "write") void this.#write(member, told);
    else this.#judge.hear(member.client, told);
  }

  async #write(member: Member, { number, id, token, floor, live }: Ask): Promise<void> {
    const name = this.#judge.holdOf(id)?.name;
    let accepted = name !== undefined;
    // The fence decides in this very step, so writes are noted in the order in which it took them.
    const taken = name === undefined ? undefined : this.#fence.accept(name, { token, floor, live });
    const at = now();
    try {
      await taken;
    } catch (error) {
      if (!(error instanceof StaleTokenError)) throw error;
      accepted = false;
    }
    this.#judge.wrote(member.client, number, id, at, accepted);
    member.say({ say: "answer", number, accepted });
  }

  /** Whoever ends without being told to has crashed. */
  #ended(member: Member): void {
    if (member.killed || member.left) return;
    this.#judge.died(member.client, now());
    const what = `client ${member.client} ended by itself (${member.exit}): ${member.said.trim()}`;
    this.#judge.report({ rule: "no crash", what });
  }

  #nextEpoch(): void {
    this.#epoch += 1;
    for (const member of this.#members) if (member.alive) member.say({ say: "epoch", epoch: this.#epoch });
  }

  #check(): void {
    const horizon = now() - HEARD_MS;
    // What is in the pipes already is read first, also by a driver that stood still itself.
    setTimeout(() => this.#checkUntil(horizon), 500).unref();
  }

  #checkUntil(horizon: number): void {
    const order = this.#members.find(({ guarantees }) => guarantees !== null)?.guarantees?.order;
    if (order === undefined) return;
    const wrong = this.#judge.check(horizon, { order, lateMs: LATE_MS });
    if (wrong !== null) this.#save(wrong);
  }

  #save(history: History): void {
    if (this.#saved.length >= SAVED_MAX) return;
    const { out, seed } = this.#options;
    mkdirSync(out, { recursive: true });
    const path = join(out, `${this.#store.name}-${seed}-${this.#saved.length}.json`);
    writeFileSync(path, JSON.stringify({ violations: this.#judge.violations, faults: this.#done, history }, null, 1));
    this.#saved.push(path);
  }

  /** Load and faults for a while. */
  async #goOn(rig: Rig, faults: Generator<Planned, never>, ms: number): Promise<void> {
    const end = now() + ms;
    const { interrupted, progress } = this.#options;
    for (const member of this.#members) member.say({ say: "go" });
    while (!interrupted.aborted) {
      const { value } = faults.next();
      await Promise.race([pause(Math.min(value.afterMs, Math.max(0, end - now()))), this.#interrupted]);
      if (now() >= end) break;
      this.#begin(value, rig);
      progress(this.line());
    }
    await Promise.all(this.#healing);
  }

  /** One line of how it goes. */
  line(): string {
    const { holds, lost } = this.#judge.counts;
    const done = Object.entries(this.#faults).filter(([, many]) => many > 0);
    const faults = done.map(([kind, many]) => `${many} ${kind}`).join(", ");
    return `${this.#store.title}: ${holds} holds, ${lost} lost, ${this.#judge.violations.length} violations; ${faults}`;
  }

  #begin({ kind, worker, server, part }: Planned, rig: Rig): void {
    const ofServer = kind === "restart" || kind === "freeze";
    const target = ofServer ? "server" : `worker ${worker}`;
    if (this.#hurt.has(target)) return;
    if (kind === "kill" && worker === 0) return;
    const member = this.#members[worker];
    if (!ofServer && member?.alive !== true) return;
    this.#hurt.add(target);
    this.#done.push({ at: now(), kind, target: ofServer ? `server ${server}` : `client ${member?.client}`, part });
    this.#faults[kind] += 1;
    const done = (ofServer ? this.#hurtServer(kind, server, part, rig) : this.#hurtWorker(kind, worker, part, rig))
      .catch(
        (error: unknown) => void this.#judge.report({ rule: "the soak itself", what: `${kind}: ${String(error)}` }),
      )
      .finally(() => (this.#hurt.delete(target), this.#healing.delete(done)));
    this.#healing.add(done);
  }

  async #hurtWorker(kind: FaultKind, place: number, part: number, rig: Rig): Promise<void> {
    const { leaseMs } = this.#store;
    const member = this.#members[place];
    const wires = this.#wires[place] ?? [];
    if (member === undefined) return;
    if (kind === "kill") {
      this.#judge.died(member.client, await member.kill());
      await pause(part * leaseMs);
      return this.#enter(place, rig);
    }
    if (kind === "pause") {
      const goOn = this.#judge.stopped(member.client, now());
      member.signal("SIGSTOP");
      await pause(part * part * 4 * leaseMs);
      member.signal("SIGCONT");
      return goOn(now());
    }
    for (const wire of wires) {
      if (kind === "cut") wire.cut();
      else if (kind === "stall") wire.stall();
      else if (kind === "silence") wire.silence();
      else if (kind === "deafen") wire.deafen();
      else wire.delay(part * 0.3 * leaseMs);
    }
    await pause(part * 2.5 * leaseMs);
    // No connection loses a part of what was sent and then goes on: answers would be taken for those of other requests.
    if (kind === "deafen") wires.forEach((wire) => wire.cut());
    wires.forEach((wire) => wire.heal());
  }

  async #hurtServer(kind: FaultKind, place: number, part: number, rig: Rig): Promise<void> {
    const { leaseMs } = this.#store;
    const server = rig.servers[place];
    if (server === undefined) return occupyFor(rig.file ?? "", part * leaseMs);
    if (kind === "restart") {
      await server.running().end("SIGKILL");
      await pause(part * 0.5 * leaseMs);
      await server.restart();
      return;
    }
    const family = familyOf(server.running().pid);
    const send = (signal: NodeJS.Signals): void => {
      for (const pid of family) {
        try {
          process.kill(pid, signal);
        } catch {
          // It has ended meanwhile.
        }
      }
    };
    send("SIGSTOP");
    await pause(part * 1.5 * leaseMs);
    send("SIGCONT");
  }

  /** Everybody finishes what is under way and begins nothing new: then it can be counted. */
  async #atRest(rig: Rig): Promise<Level> {
    for (const member of this.#members) member.say({ say: "rest" });
    const limitMs = 60_000 + 20 * this.#store.leaseMs;
    const all = (): boolean => this.#members.every(({ resting, alive }) => resting || !alive);
    await until("all come to rest", all, limitMs).catch(async () => {
      for (const { client, name, askedAt, how } of this.#judge.waiting) {
        const seen = await this.#stateOf(name, rig);
        const what = `client ${client} still waits for "${name}" since ${askedAt} (${JSON.stringify(how)}): ${seen}`;
        this.#judge.report({ rule: "liveness", what });
      }
      this.#save(this.#judge.history(now()));
    });
    // Pools close what they do not need.
    if (this.#options.ms >= LONG_MS) await pause(POOLS_MS);
    const [first] = this.#members;
    if (first === undefined) throw new Error("nobody is there");
    return { process: await first.measure(), store: await this.#store.count(rig) };
  }

  /** What the store says of a name, for whoever has to find out why nobody gets it. */
  async #stateOf(name: string, rig: Rig): Promise<string> {
    if (this.#store.row === null) return "the store is in that process";
    const locks = await connect(this.#url(portsOf(rig), rig), this.#connectOptions);
    try {
      for await (const state of locks.inspect({ name })) return JSON.stringify(state);
      return "nobody holds it and nobody waits for it";
    } finally {
      await locks.close();
    }
  }

  async #leave(): Promise<void> {
    for (const member of this.#members) if (member.alive) member.say({ say: "leave" });
    const gone = (): boolean => this.#members.every(({ exit }) => exit !== null);
    await until("all have left", gone, 60_000).catch(() => {
      for (const { client, exit } of this.#members) {
        if (exit === null) this.#judge.report({ rule: "liveness", what: `client ${client} does not come to an end` });
      }
    });
    // All of it has been heard, so all of it is judged.
    this.#checkUntil(Infinity);
    this.#judge.checkWaiting();
  }

  /** No holder and no waiter is left after the longest lease; and when tombstones have ended, nothing at all. */
  async #whatIsLeft(rig: Rig, before: Counts): Promise<Counts | null> {
    const { row, leaseMs, idle } = this.#store;
    if (row === null) return null;
    const locks = await connect(this.#url(portsOf(rig), rig), this.#connectOptions);
    let inUse: string[] = [];
    const look = async (): Promise<boolean> => {
      const seen: string[] = [];
      try {
        for await (const { name, holders, waiters } of locks.inspect()) {
          if (holders.length + waiters.length > 0) seen.push(`${name} (${holders.length} + ${waiters.length})`);
        }
      } catch (error) {
        // A quorum's members answer within a limit, which a busy machine may miss: it is asked again.
        seen.push(`nobody knows, because of ${String(error)}`);
      }
      inUse = seen;
      return inUse.length === 0;
    };
    await until("no claim is left", look, 2 * leaseMs + 15_000).catch(() => {
      this.#judge.report({ rule: "no orphan", what: `still in use: ${inUse.join(", ")}` });
    });
    await locks.close();
    if (this.#options.ms < LONG_MS) return null;
    const names = KINDS * (KEPT + this.#epoch + 1);
    let counts: Counts = {};
    const excess = (): string[] =>
      Object.entries(counts).flatMap(([what, many]) => {
        const allowed = (before[what] ?? 0) + (what === idle ? names * rig.servers.length : 0);
        return many > allowed ? [`${many} ${what} (${allowed})`] : [];
      });
    const empty = async (): Promise<boolean> => {
      await this.#store.tidy?.(rig);
      counts = await this.#store.count(rig);
      return excess().length === 0;
    };
    this.#options.progress(`${this.#store.title}: waiting until tombstones have ended`);
    await until("nothing is left", empty, 2 * TOMBSTONE_MS + 30_000).catch(() => {
      this.#judge.report({ rule: "nothing is left", what: excess().join(", ") });
    });
    return counts;
  }

  /** What a process uses at rest does not grow. */
  #flat(start: Level | null, end: Level | null): void {
    if (start === null || end === null || this.#options.ms < LONG_MS) return;
    // Timers are shown, not judged: some clients have one for each tombstone of the last minute.
    const { heap, timers: _, ...handles } = start.process;
    const most = Math.max(heap * HEAP_SLACK.factor, heap + HEAP_SLACK.bytes);
    if (end.process.heap > most) {
      this.#judge.report({ rule: "flat", what: `heap ${heap} at the start, ${end.process.heap} at the end` });
    }
    for (const [what, many] of Object.entries(handles) as [keyof typeof handles, number][]) {
      if (end.process[what] <= many + SPARE_HANDLES) continue;
      this.#judge.report({ rule: "flat", what: `${many} ${what} at the start, ${end.process[what]} at the end` });
    }
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
