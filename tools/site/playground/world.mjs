// The playground without its looks: a store in memory, clients of it, and a resource that they write to.
// oxlint-disable-next-line no-unassigned-import -- before all others: what they import of Node.js
import "./node.mjs";
import { Client } from "../../../src/core/client.ts";
import { SystemChance } from "../../../src/core/clock.ts";
import { StaleTokenError } from "../../../src/core/errors.ts";
import { memoryEngine, memoryStore } from "../../../src/engines/memory/index.ts";
import { memoryFence } from "../../../src/fence/memory.ts";
import { Model } from "../../../src/live/page/model.ts";
import { Picture } from "../../../src/live/picture.ts";
import { Locks } from "../../../src/locks.ts";
import { intercept } from "../../../src/testing/intercept.ts";
import { Process } from "./process.mjs";

export const NAME = "stock";
export const LEASE_MS = 4_000;
/** From the moment in which a worker checks that it holds the lock to its write: a pause falls in between. */
const PREPARE_MS = 1_200;
const WRITES_KEPT = 60;

/** Tokens are counted from 1: in a page no two stores have to agree. */
const storeClock = { now: () => performance.now(), wallMs: () => 0, after: setTimeout, cancel: clearTimeout };

export class World {
  store = memoryStore(storeClock);
  resource = new Resource();
  model = new Model();
  pauses = [];
  workers = ["A", "B", "C"].map((label) => new Worker(this, label));
  #engine = memoryEngine(this.store);
  #picture = new Picture();

  /** Reads the store, as the live view does. */
  async look() {
    const states = [];
    for await (const state of this.#engine.inspect({ name: NAME })) states.push(state);
    const at = performance.now();
    const { set, gone, leases } = this.#picture.update(states, at);
    const status = { answering: true, since: 0, tookMs: 0, everyMs: 100, shown: states.length, more: false };
    this.model.apply({ at, status, set, gone, leases, complete: true });
    return states[0] ?? null;
  }

  /** What happened to the holders, for the timeline. */
  marks() {
    return [...this.pauses, ...this.resource.writes].map((one) => ({ ...one, told: "" }));
  }

  stop() {
    for (const worker of this.workers) worker.crash();
  }
}

/** Takes every write, or compares tokens first. */
class Resource {
  fenced = true;
  /** The write that stands. */
  last = null;
  writes = [];
  #newest = 0;
  #fence = memoryFence();

  async switchFence(on) {
    this.fenced = on;
    // What was written meanwhile counts.
    if (on && this.#newest > 0) await this.#fence.raise(NAME, this.#newest);
  }

  async write(who, token) {
    const kind = (await this.#accepts(token)) ? (token < this.#newest ? "stale" : "written") : "refused";
    const write = { who, token, kind, at: performance.now() };
    this.writes = [...this.writes, write].slice(-WRITES_KEPT);
    if (kind === "refused") return;
    this.last = write;
    this.#newest = Math.max(this.#newest, token);
  }

  async #accepts(token) {
    if (!this.fenced) return true;
    try {
      await this.#fence.accept(NAME, token);
      return true;
    } catch (error) {
      if (error instanceof StaleTokenError) return false;
      throw error;
    }
  }
}

/** A program: takes the lock, and writes again and again while it holds it. */
class Worker {
  label;
  state = "idle";
  paused = false;
  delayMs = 0;
  token = null;
  /** Why its last hold was lost, as it was told. */
  lost = null;
  #world;
  #process;
  #locks;
  #finish = new AbortController();

  constructor(world, label) {
    this.#world = world;
    this.label = label;
    this.start();
  }

  /** A new process in the place of one that crashed. */
  start() {
    const process = new Process();
    process.delay(this.delayMs);
    const call = (send) => process.call(send);
    const hooks = { claim: call, release: call, renew: call, push: (deliver) => process.receive(deliver) };
    const engine = intercept(memoryEngine(this.#world.store), hooks);
    const settings = { leaseMs: LEASE_MS, callTimeoutMs: 10_000, tokenBase: 0, label: this.label };
    const client = new Client(engine, process.clock, new SystemChance(), settings);
    this.#process = process;
    this.#locks = new Locks(client, async () => {});
    this.#locks.on("lost", ({ reason }) => (this.lost = reason));
    Object.assign(this, { state: "idle", paused: false, token: null, lost: null });
  }

  async take() {
    const process = this.#process;
    this.#finish = new AbortController();
    const { signal } = this.#finish;
    Object.assign(this, { state: "waiting", lost: null });
    let hold;
    try {
      hold = await this.#locks.mutex(NAME).acquire({ signal });
    } catch {
      // It left the queue.
      this.state = "idle";
      return;
    }
    Object.assign(this, { state: "holding", token: hold.token });
    await this.#work(hold, process, signal);
    if (!hold.signal.aborted) await hold.release().catch(() => {});
    Object.assign(this, { state: "idle", token: null });
  }

  async #work(hold, process, finish) {
    const finished = new Promise((resolve) => finish.addEventListener("abort", resolve));
    while (!finish.aborted && !hold.signal.aborted) {
      await Promise.race([process.sleep(PREPARE_MS), finished]);
      // Checked before, not now: this is the program that needs the fence.
      if (!finish.aborted) await process.call(() => this.#world.resource.write(this.label, hold.token));
    }
  }

  /** Gives the lock back, or leaves the queue. */
  finish() {
    this.#finish.abort();
  }

  pause() {
    this.#process.stop();
    this.paused = true;
    this.#world.pauses = [
      ...this.#world.pauses,
      { who: this.label, kind: "paused", at: performance.now(), until: null },
    ];
  }

  resume() {
    this.#endPause();
    this.#process.go();
  }

  #endPause() {
    this.paused = false;
    const pause = this.#world.pauses.findLast(({ who }) => who === this.label);
    if (pause !== undefined) pause.until ??= performance.now();
  }

  crash() {
    this.#endPause();
    this.#process.kill();
    Object.assign(this, { state: "crashed", token: null });
  }

  delay(ms) {
    this.delayMs = ms;
    this.#process.delay(ms);
  }
}
