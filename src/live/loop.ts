import type { Client } from "../core/client.js";
import type { Timer } from "../core/clock.js";
import { ClosedError, EngineUnavailableError, HoldfastError } from "../core/errors.js";
import type { NameState } from "../core/inspect.js";
import {
  CHUNK_NAMES,
  NAMES_PER_MS,
  PAGE_WAIT_MS,
  PROBE_EVERY_MS,
  READING_SHARE,
  RETRY_MAX_MS,
  SILENT_MS,
  STALLED_MAX_MS,
  STREAM_MAX_MS,
} from "./limits.js";
import type { Settings } from "./options.js";
import { Picture } from "./picture.js";
import { readServer } from "./server.js";
import { Viewer } from "./viewer.js";
import type { StatusView, StoreView, Update } from "./wire.js";

/** Reads the store again and again while somebody looks: once for all who do. */
export class Loop {
  readonly #client: Client;
  readonly #settings: Settings;
  readonly #picture = new Picture();
  readonly #viewers = new Set<Viewer>();
  #status: StatusView;
  #store: StoreView | null = null;
  #probedAt = -Infinity;
  /** When the last reading ended. */
  #readAt = -Infinity;
  /** How long the last reading took in which the store did not stand still. */
  #usualMs: number | null = null;
  #failures = 0;
  #reading: Promise<void> | null = null;
  /** For the next reading. */
  #timer: Timer | null = null;
  /** For the next look whether the reading that is under way goes on. */
  #silence: Timer | null = null;
  /** How many answers the store has given. */
  #heard = 0;
  #closed = false;

  constructor(client: Client, settings: Settings) {
    this.#client = client;
    this.#settings = settings;
    const { everyMs } = settings;
    this.#status = { answering: true, since: this.now(), tookMs: null, everyMs, shown: 0, more: false };
  }

  get closed(): boolean {
    return this.#closed;
  }

  get viewers(): number {
    return this.#viewers.size;
  }

  get status(): StatusView {
    return this.#status;
  }

  /** Now, by the clock that all times in views are of. */
  now(): number {
    return Math.round(this.#client.clock.now());
  }

  /** For one more page; it gets what is known at once, and the rest as it comes. */
  open(mayRelease: boolean): Viewer {
    const viewer = new Viewer(
      () => this.#whole(mayRelease),
      (left) => this.#leave(left),
      this.#client.clock.now(),
    );
    this.#viewers.add(viewer);
    this.#goOn();
    return viewer;
  }

  /** The names as they are, for a page without scripts; as they were, when the store does not answer in time. */
  async look(): Promise<Picture> {
    if (this.#dueMs() <= 0) this.#startReading();
    let timer: Timer | null = null;
    const limit = new Promise<void>((resolve) => (timer = this.#client.clock.after(PAGE_WAIT_MS, resolve)));
    await Promise.race([this.#reading, limit]);
    if (timer !== null) this.#client.clock.cancel(timer);
    return this.#picture;
  }

  /** What was just changed by a viewer is shown soon. */
  hurry(): void {
    this.#readAt = -Infinity;
    this.#stop();
    this.#goOn();
  }

  close(): void {
    this.#closed = true;
    this.#stop();
    this.#endSilence();
    for (const viewer of this.#viewers) viewer.end();
  }

  #leave(viewer: Viewer): void {
    this.#viewers.delete(viewer);
    if (this.#viewers.size === 0) this.#stop();
  }

  #stop(): void {
    if (this.#timer !== null) this.#client.clock.cancel(this.#timer);
    this.#timer = null;
  }

  /** The next reading, if anybody looks: now, or when it is due. */
  #goOn(): void {
    if (this.#closed || this.#viewers.size === 0 || this.#reading !== null || this.#timer !== null) return;
    this.#timer = this.#client.clock.after(Math.max(0, this.#dueMs()), () => {
      this.#timer = null;
      this.#startReading();
    });
  }

  #dueMs(): number {
    return this.#readAt + this.#status.everyMs - this.#client.clock.now();
  }

  #startReading(): void {
    if (this.#reading !== null || this.#closed) return;
    this.#watchSilence(-1);
    this.#reading = this.#read().finally(() => {
      this.#endSilence();
      this.#reading = null;
      this.#readAt = this.#client.clock.now();
      this.#goOn();
    });
  }

  /** While the store is read and nothing comes from it, viewers are told. */
  #watchSilence(before: number): void {
    this.#silence = this.#client.clock.after(SILENT_MS / 2, () => {
      if (this.#heard === before) this.#silent(EngineUnavailableError.code);
      this.#watchSilence(this.#heard);
    });
  }

  #endSilence(): void {
    if (this.#silence !== null) this.#client.clock.cancel(this.#silence);
    this.#silence = null;
  }

  async #read(): Promise<void> {
    const startedAt = this.#client.clock.now();
    try {
      const { states, more } = await this.#names();
      const at = this.now();
      const tookMs = Math.round(this.#client.clock.now() - startedAt);
      const { answering } = this.#status;
      // Neither one slow reading, nor one in which the store stood still, says how long they take.
      const usualMs = Math.min(tookMs, this.#usualMs ?? (answering ? tookMs : 0));
      if (answering) this.#usualMs = tookMs;
      const everyMs = Math.ceil(
        Math.max(this.#settings.everyMs, states.length / NAMES_PER_MS, usualMs * (READING_SHARE - 1)),
      );
      const since = answering ? this.#status.since : at;
      this.#failures = 0;
      this.#status = { answering: true, since, tookMs, everyMs, shown: states.length, more };
      const before = JSON.stringify(this.#picture.deadlocks);
      const { set, gone, leases } = this.#picture.update(states, at);
      const { deadlocks } = this.#picture;
      this.#send({
        ...(set.length > 0 ? { set } : {}),
        ...(gone.length > 0 ? { gone } : {}),
        ...(leases.length > 0 ? { leases } : {}),
        ...(JSON.stringify(deadlocks) === before ? {} : { deadlocks }),
      });
      await this.#probe();
    } catch (error) {
      if (error instanceof ClosedError || this.#client.closed) return this.close();
      this.#failed(error);
    }
  }

  /** As many as are shown. */
  async #names(): Promise<{ states: NameState[]; more: boolean }> {
    const states: NameState[] = [];
    const { prefix, names } = this.#settings;
    this.#client.assertOpen("inspecting");
    for await (const state of this.#client.inspect(prefix === "" ? {} : { prefix })) {
      this.#heard += 1;
      if (states.length === names) return { states, more: true };
      states.push(state);
    }
    this.#heard += 1;
    return { states, more: false };
  }

  /** Who answers, and how fast. Not with every reading: it is a request of its own. */
  async #probe(): Promise<void> {
    const now = this.#client.clock.now();
    if (now - this.#probedAt < PROBE_EVERY_MS) return;
    this.#probedAt = now;
    this.#store = await readServer(this.#client);
    this.#send({ store: this.#store });
  }

  #failed(error: unknown): void {
    this.#failures += 1;
    const everyMs = Math.min(RETRY_MAX_MS, this.#settings.everyMs * 2 ** Math.min(this.#failures, 10));
    this.#status = { ...this.#status, everyMs: Math.max(everyMs, this.#settings.everyMs) };
    // Its message may name addresses and users: it is for the program, not for whoever looks.
    this.#silent(error instanceof HoldfastError ? error.code : EngineUnavailableError.code);
    const { kind: engine } = this.#client.engine;
    this.#client.events.emit("unavailable", () => ({ doing: "inspecting for the live view", engine, cause: error }));
  }

  #silent(code: string): void {
    const { answering, since } = this.#status;
    this.#status = { ...this.#status, answering: false, since: answering ? this.now() : since, code };
    this.#send({});
  }

  /** To all, in the same words. Also when nothing has changed: a page that hears nothing for long says so. */
  #send(update: Omit<Update, "at" | "status">): void {
    if (this.#viewers.size === 0) return;
    const now = this.#client.clock.now();
    const message = this.#message(update);
    for (const viewer of this.#viewers) {
      const stalled = viewer.stalledSince !== null && now - viewer.stalledSince > STALLED_MAX_MS;
      if (stalled || now - viewer.openedAt > STREAM_MAX_MS) viewer.end();
      else viewer.send(message, now);
    }
  }

  /** The whole picture in pieces, as it is when this is called; a piece is made when it is asked for. */
  #whole(mayRelease: boolean): Iterator<Uint8Array> {
    const { views, deadlocks } = this.#picture;
    const store = this.#store;
    const message = (update: Omit<Update, "at" | "status">): Uint8Array => this.#message(update);
    return (function* () {
      const first = { reset: true as const, mayRelease, deadlocks, ...(store === null ? {} : { store }) };
      yield message({ ...first, set: views.slice(0, CHUNK_NAMES) });
      for (let at = CHUNK_NAMES; at < views.length; at += CHUNK_NAMES) {
        yield message({ set: views.slice(at, at + CHUNK_NAMES) });
      }
      yield message({ complete: true });
    })();
  }

  #message(update: Omit<Update, "at" | "status">): Uint8Array {
    const whole: Update = { at: this.now(), status: this.#status, ...update };
    return new TextEncoder().encode(`data: ${JSON.stringify(whole)}\n\n`);
  }
}
