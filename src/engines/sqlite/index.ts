import { checkKnown } from "../../core/checks.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "../../core/clock.js";
import type {
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import { ClosedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { SqliteCells } from "./cells.js";
import type { SqliteDatabase } from "./client.js";
import { defaultPath, makePrivate, pathOfUrl } from "./file.js";
import type { Push } from "./ledger.js";
import { type Machine, ThisMachine } from "./machine.js";
import type { Letter } from "./mailbox.js";
import { type FileParts, openFile, type SqliteFile } from "./open.js";
import type { SqliteStore } from "./store.js";

export type { SqliteDatabase, SqliteStatement, SqliteValue } from "./client.js";
export type { Machine } from "./machine.js";

export interface SqliteOptions {
  /** Time, chance and the machine, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
  readonly machine?: Machine;
}

/** What a clean-up did. */
export type Maintained = { readonly mailboxesRemoved: number };

export interface SqliteEngine extends Engine {
  /** Open the file now instead of at the first call: rejects when it cannot be used. */
  ready(): Promise<void>;
  /** Forget everything that is idle or has ended. Normal use does the same in small batches. */
  maintenance(): Promise<Maintained>;
}

const GUARANTEES: Guarantees = {
  exclusion: "one-machine",
  token: "monotonic",
  order: "fifo",
  wake: "push",
  // A dead process is noticed within moments, but not across PID namespaces, so that is no promise.
  crashRelease: "lease",
  survivesRestart: true,
};

/** Heartbeats that go into one transaction; others may write between two of them. */
const RENEW_BATCH = 256;
const INSPECT_BATCH = 64;
/** Every so many claims a batch of rows is swept: as many as the claims can have left behind. */
const SWEEP_EVERY = 64;

const OPTIONS: readonly string[] = ["clock", "chance", "machine"] satisfies (keyof SqliteOptions)[];

/**
 * Locks in a file, for all processes of one machine. Give a path, or an open database (`node:sqlite`, `libsql`,
 * `better-sqlite3`) that is used for nothing else; a database of yours stays yours to close.
 */
export function sqliteEngine(target: string | SqliteDatabase, options: SqliteOptions = {}): SqliteEngine {
  checkKnown(options, OPTIONS);
  return new FileEngine(target, options);
}

/** `sqlite:path`; without a URL the file in the user's state folder. */
export async function openSqlite(url?: string, options: SqliteOptions = {}): Promise<Engine> {
  const path = url === undefined ? defaultPath() : pathOfUrl(url);
  if (url === undefined) makePrivate(path, new SystemChance());
  const engine = sqliteEngine(path, options);
  await engine.ready();
  return engine;
}

class FileEngine implements SqliteEngine {
  readonly kind = "sqlite";
  readonly guarantees = GUARANTEES;
  readonly leaseMinMs = 1;
  readonly cells: SqliteCells;
  readonly #parts: FileParts;
  readonly #listeners = new Listeners();
  /** Claims of this client that hold, for the day it ends: what was handed over lives on. */
  readonly #holds = new Map<string, ClaimRef>();
  #file: Promise<SqliteFile> | null = null;
  #claims = 0;
  #closing: Promise<void> | null = null;

  constructor(target: string | SqliteDatabase, options: SqliteOptions) {
    const { clock = new SystemClock(), chance = new SystemChance(), machine = new ThisMachine() } = options;
    this.#parts = {
      target,
      clock,
      chance,
      machine,
      emit: (event) => this.#emit(event),
      letter: (letter) => this.#letter(letter),
      clear: (name, guard) => void this.#clear(name, guard),
      holding: () => this.#holds.size > 0,
    };
    this.cells = new SqliteCells(
      clock,
      () => this.#open(),
      (message) => this.#emit({ kind: "warning", message }),
    );
  }

  async ready(): Promise<void> {
    await this.#open();
  }

  async serverInfo(): Promise<ServerInfo> {
    return { server: (await this.#open()).identity };
  }

  async claim(claim: ClaimRequest) {
    const answer = await this.#step(
      `claiming "${claim.name}"`,
      (store) => store.claim(claim),
      (heard, file) => this.#note(claim, heard.kind, file),
    );
    this.#claims += 1;
    if (this.#claims % SWEEP_EVERY === 0) void this.#sweep();
    return answer;
  }

  async release(leave: ReleaseRequest) {
    const doing = `releasing "${leave.name}"`;
    const note = (_: string, file: SqliteFile): void => this.#note(leave, "gone", file);
    return this.#step(doing, (store) => store.release(leave), note);
  }

  async renew(signs: readonly RenewRequest[]) {
    const answers: RenewAnswer[] = [];
    for (let at = 0; at < signs.length; at += RENEW_BATCH) {
      const batch = signs.slice(at, at + RENEW_BATCH);
      try {
        const renewed = await this.#step(
          `renewing ${signs.length} claims`,
          (store) => batch.map((sign) => store.renew(sign)),
          (heard, file) => batch.forEach((sign, n) => this.#note(sign, heard[n]?.kind ?? "unknown", file)),
        );
        answers.push(...renewed);
      } catch (cause) {
        // Nothing is known of any of them, or of none of the rest.
        if (at === 0) throw cause;
        return [...answers, ...signs.slice(at).map(() => ({ kind: "unknown", cause }) as const)];
      }
    }
    return answers;
  }

  async resize(ref: ClaimRef, units: number) {
    return this.#step(`resizing "${ref.name}"`, (store) => store.resize(ref, units));
  }

  async setCapacity(name: string, from: number, to: number) {
    return this.#step(`changing the capacity of "${name}"`, (store) => store.setCapacity(name, from, to));
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    const { name, prefix = "" } = filter;
    if (name !== undefined && !name.startsWith(prefix)) return;
    const states = (names: readonly string[]): Promise<NameState[]> =>
      this.#step("inspecting", (store) =>
        names.map((text) => store.inspect(text)).filter((state) => state !== undefined),
      );
    if (name !== undefined) {
      yield* await states([name]);
      return;
    }
    const { gate, ledger } = await this.#open();
    // Names are ordered by their bytes, so those with a prefix stand together, right behind the prefix itself.
    const next = (after: string): Promise<string[]> =>
      gate.read("inspecting", () => ledger.sql.namesAfter.all(after, INSPECT_BATCH).map((row) => row.name));
    if (prefix !== "") yield* await states([prefix]);
    for (let names = await next(prefix); names.length > 0; names = await next(names.at(-1) ?? "")) {
      const matching = names.filter((text) => text.startsWith(prefix));
      if (matching.length > 0) yield* await states(matching);
      if (matching.length < names.length) return;
    }
  }

  async maintenance(): Promise<Maintained> {
    const { mailbox } = await this.#open();
    // From wherever the last sweep came to, to the end; then all of them.
    for (let ends = 0; ends < 2; ) if (await this.#step("cleaning up", (store) => store.sweep())) ends += 1;
    return { mailboxesRemoved: mailbox.sweep(this.#parts.clock.wallMs()) };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    const file = await this.#file?.catch(() => null);
    if (file) {
      await this.#handOff(file);
      this.cells.stop();
      file.close();
    }
    this.#listeners.clear();
  }

  /** Holds that nobody released were handed over to another process: they must not end with this one. */
  async #handOff({ gate, ledger, store }: SqliteFile): Promise<void> {
    if (this.#holds.size === 0) return;
    try {
      await gate.run("closing", () => {
        ledger.begin();
        store.unguard(this.#holds.values());
        ledger.finish();
      });
    } catch (error) {
      const message = `${this.#holds.size} claims that were not released may end with this process: ${String(error)}`;
      this.#emit({ kind: "warning", message });
    }
  }

  #open(): Promise<SqliteFile> {
    if (this.#closing !== null) return Promise.reject(new ClosedError("using the sqlite engine"));
    if (this.#file !== null) return this.#file;
    const file = openFile(this.#parts);
    this.#file = file;
    // What stood in the way may be gone next time.
    file.catch(() => (this.#file = null));
    return file;
  }

  /** One transaction. What it pushes goes out after the commit, before anything else happens here. */
  async #step<T>(
    doing: string,
    step: (store: SqliteStore) => T,
    note: (answer: T, file: SqliteFile) => void = () => {},
  ): Promise<T> {
    const file = await this.#open();
    const { gate, ledger, store, mailbox } = file;
    let pushes: readonly Push[] = [];
    const run = (): T => {
      ledger.begin();
      const answer = step(store);
      pushes = ledger.finish();
      return answer;
    };
    return gate.run(doing, run, (answer) => {
      note(answer, file);
      for (const push of pushes) {
        if (push.client !== mailbox.address) mailbox.post(push);
        // Later, as from any other store: who is pushed to must not run inside the step that pushes.
        else queueMicrotask(() => this.#letter(push.event));
      }
    });
  }

  /** Keep track of who waits and who holds. */
  #note({ name, id }: ClaimRef, kind: string, { lookout }: SqliteFile): void {
    if (kind === "queued") lookout.waits({ name, id });
    else if (kind !== "unknown") lookout.settled({ name, id });
    if (kind === "granted") this.#holds.set(`${id} ${name}`, { name, id });
    else if (kind !== "unknown") this.#holds.delete(`${id} ${name}`);
    lookout.adapt();
  }

  #letter(letter: Letter): void {
    void this.#file?.then((file) => {
      // Told already: by an answer, or by the lookout.
      if (letter.kind === "granted" && !file.lookout.settled(letter)) return;
      this.#note(letter, letter.kind === "granted" ? "granted" : "gone", file);
      this.#emit(letter);
    });
  }

  #emit(event: EngineEvent): void {
    this.#listeners.tell(event);
  }

  /** For the lookout, which cannot wait: whatever fails here is found again at its next look. */
  async #clear(name: string, guard: string): Promise<void> {
    try {
      await this.#step(`clearing "${name}" of a dead process`, (store) => store.clear(name, guard));
    } catch (error) {
      this.#emit({ kind: "warning", message: `"${name}" could not be cleared of a dead process: ${String(error)}` });
    }
  }

  /** A batch of rows that nobody needs, behind somebody's claim, who is not to wait for it. */
  async #sweep(): Promise<void> {
    try {
      await this.#step("cleaning up", (store) => store.sweep());
    } catch (error) {
      if (this.#closing === null)
        this.#emit({ kind: "warning", message: `old rows are still there: ${String(error)}` });
    }
  }
}
