import type { Guarantees } from "../../src/core/guarantees.js";
import {
  type Attempt,
  checkHistory,
  type Held,
  type History,
  type Pause,
  type Violation,
} from "../../src/testing/history.js";

/** What `worker.mjs` tells of its locks. */
export type Told =
  | {
      readonly event: "asked";
      readonly number: number;
      readonly name: string;
      readonly at: number;
      readonly how: object;
    }
  | {
      readonly event: "answered";
      readonly number: number;
      readonly at: number;
      readonly outcome: "ok" | "fail" | "unknown";
      readonly why?: string;
    }
  | (Pick<Held, "name" | "id" | "token" | "floor" | "units" | "capacity" | "askedAt" | "queuedAt" | "deadline"> & {
      readonly event: "granted";
      readonly at: number;
    })
  | { readonly event: "renewed"; readonly id: string; readonly deadline: number }
  | { readonly event: "adopted"; readonly id: string; readonly at: number; readonly deadline: number }
  | { readonly event: "releasing"; readonly id: string; readonly at: number }
  | { readonly event: "lost"; readonly id: string; readonly at: number; readonly reason: string }
  | { readonly event: "wrote while held"; readonly number: number }
  | { readonly event: "beat"; readonly at: number }
  | { readonly event: "stood still"; readonly from: number; readonly to: number };

/** As the kit has it, but written while it happens. */
type Entry = { -readonly [Key in keyof Held]: Held[Key] };
type Asked = Attempt & { readonly how: object };
type Written = { readonly hold: Entry; readonly at: number; checked: boolean; readonly accepted: boolean };

export type Rules = {
  readonly order: Guarantees["order"];
  /** How late a timer may be. */
  readonly lateMs: number;
};

/** What is long over is forgotten: nobody who asks now can have been overtaken by it. */
const KEEP_MS = 10_000;

/**
 * The history of a soak, judged by the kit's checkers while it grows. They compare every hold with every other, so they get it in
 * pieces that overlap: what is younger than `KEEP_MS` or still held, and of what is older the highest token of each name and
 * the last write that moved its fence. Whoever breaks a rule with something older breaks it with those, too.
 */
export class Judge {
  readonly counts = { asked: 0, holds: 0, lost: 0, writes: 0, refused: 0, adopted: 0 };
  readonly violations: Violation[] = [];
  readonly #seen = new Set<string>();
  readonly #attempts = new Map<string, Asked>();
  readonly #byId = new Map<string, Entry>();
  readonly #underWay = new Map<string, Written>();
  #holds: Entry[] = [];
  #writes: Written[] = [];
  #pauses: Pause[] = [];
  /** When each live client last said that it runs. */
  readonly #heardAt = new Map<number, number>();
  /** By name, of what was forgotten. */
  readonly #highest = new Map<string, Entry>();
  readonly #lastWrite = new Map<string, Written>();

  hear(client: number, told: Told): void {
    switch (told.event) {
      case "asked": {
        const { number, name, at, how } = told;
        this.counts.asked += 1;
        this.#attempts.set(`${client} ${number}`, { client, name, askedAt: at, endedAt: null, outcome: "open", how });
        return;
      }
      case "answered":
        this.#attempts.delete(`${client} ${told.number}`);
        return;
      case "granted": {
        const { event: _, at: grantedAt, ...facts } = told;
        const hold: Entry = { client, ...facts, grantedAt, endedAt: null, ended: "open" };
        this.counts.holds += 1;
        this.#holds.push(hold);
        this.#byId.set(hold.id, hold);
        return;
      }
      case "beat":
        this.#heardAt.set(client, told.at);
        return;
      case "stood still":
        this.#pauses.push({ client, from: told.from, to: told.to });
        return;
      case "wrote while held": {
        const written = this.#underWay.get(`${client} ${told.number}`);
        if (written !== undefined) written.checked = true;
        this.#underWay.delete(`${client} ${told.number}`);
        return;
      }
      case "renewed":
      case "adopted":
      case "releasing":
      case "lost":
        this.#change(told);
    }
  }

  #change(told: Told & { readonly event: "renewed" | "adopted" | "releasing" | "lost" }): void {
    const hold = this.#byId.get(told.id);
    if (hold === undefined) return;
    switch (told.event) {
      case "renewed":
        hold.deadline = told.deadline;
        return;
      case "adopted":
        this.counts.adopted += 1;
        // Nobody else can have had it in between, so it was held all the time.
        Object.assign(hold, { deadline: told.deadline, endedAt: null, ended: "open" });
        return;
      case "releasing":
        Object.assign(hold, { endedAt: told.at, ended: "released" });
        return;
      case "lost":
        this.counts.lost += 1;
        Object.assign(hold, { endedAt: told.at, ended: "lost" });
    }
  }

  holdOf(id: string): Held | undefined {
    return this.#byId.get(id);
  }

  /** The resource took or refused it; `checked` follows when its writer tells that it held all the while. */
  wrote(client: number, number: number, id: string, at: number, accepted: boolean): void {
    const hold = this.#byId.get(id);
    if (hold === undefined) return;
    const written = { hold, at, checked: false, accepted };
    this.counts.writes += 1;
    if (!accepted) this.counts.refused += 1;
    this.#writes.push(written);
    this.#underWay.set(`${client} ${number}`, written);
  }

  /** Whoever was killed acts no more and asks no more. */
  died(client: number, at: number): void {
    this.#heardAt.delete(client);
    for (const hold of this.#holds) {
      if (hold.client === client && hold.ended === "open") Object.assign(hold, { endedAt: at, ended: "released" });
    }
    for (const [key, attempt] of this.#attempts) if (attempt.client === client) this.#attempts.delete(key);
    for (const key of this.#underWay.keys()) if (key.startsWith(`${client} `)) this.#underWay.delete(key);
  }

  /** The process stands still from now until the result is called. */
  stopped(client: number, from: number): (to: number) => void {
    const pause = { client, from, to: Infinity };
    this.#pauses.push(pause);
    return (to) => void (pause.to = to);
  }

  /** Those who still wait. */
  get waiting(): readonly Asked[] {
    return [...this.#attempts.values()];
  }

  report(violation: Violation): boolean {
    const key = `${violation.rule}: ${violation.what}`;
    if (this.#seen.has(key)) return false;
    this.#seen.add(key);
    this.violations.push(violation);
    return true;
  }

  /** Judges everything that was granted up to `horizon`, of which all must have been heard. The history, when it is new that it is wrong. */
  check(horizon: number, rules: Rules): History | null {
    const history = this.history(horizon);
    const wrong = checkHistory(history, { ...rules, ties: rules.order !== "fifo" });
    const untold = history.holds.filter(({ ended, deadline }) => ended === "open" && deadline < horizon - rules.lateMs);
    for (const { name, client, token, deadline } of untold) {
      const what = `client ${client} was not told that "${name}" (token ${token}) ended at ${deadline}`;
      wrong.push({ rule: "told in time", what });
    }
    const isNew = wrong.map((violation) => this.report(violation)).includes(true);
    this.#forget(horizon - KEEP_MS);
    return isNew ? history : null;
  }

  /** Everybody has left: whoever still waits was forgotten. */
  checkWaiting(): void {
    const open = { attempts: [...this.#attempts.values()], holds: [], writes: [], pauses: [] };
    for (const violation of checkHistory(open, { order: "none", lateMs: 0 })) this.report(violation);
  }

  /** What was granted and written up to `horizon`. */
  history(horizon: number): History {
    const resolved = this.#resolver(horizon);
    const holds = [...this.#highest.values(), ...this.#holds].filter(({ grantedAt }) => grantedAt <= horizon);
    const writes = [...this.#lastWrite.values(), ...this.#writes].filter(({ at }) => at <= horizon);
    // What is kept because its hold goes on may be older than what was forgotten.
    writes.sort((one, two) => one.at - two.at);
    return {
      attempts: [],
      holds: holds.map(resolved),
      writes: writes.map((write) => ({ ...write, hold: resolved(write.hold) })),
      pauses: [],
    };
  }

  /**
   * The checkers look at every pause for every pair. So pauses are applied here: a process that stood still over its deadline
   * acted on its hold until then and was told when it went on.
   */
  #resolver(horizon: number): (hold: Entry) => Entry {
    const pauses = new Map<number, Pause[]>();
    // Whoever has said nothing for so long stands still, and will say so when it goes on.
    const silent = [...this.#heardAt].filter(([, at]) => at < horizon);
    for (const pause of [...this.#pauses, ...silent.map(([client, from]) => ({ client, from, to: Infinity }))]) {
      const same = pauses.get(pause.client);
      if (same === undefined) pauses.set(pause.client, [pause]);
      else same.push(pause);
    }
    const copies = new Map<Entry, Entry>();
    return (hold) => {
      const known = copies.get(hold);
      if (known !== undefined) return known;
      const { deadline, endedAt } = hold;
      const stood = pauses.get(hold.client)?.some(({ from, to }) => from <= deadline && deadline <= to) === true;
      // Who was granted it and stood still before it could look has not believed in it for a moment.
      const until = stood ? Math.max(hold.grantedAt, Math.min(endedAt ?? Infinity, deadline)) : endedAt;
      const copy: Entry = { ...hold, endedAt: until, ...(stood && hold.ended === "open" ? { ended: "lost" } : {}) };
      copies.set(hold, copy);
      return copy;
    };
  }

  #forget(before: number): void {
    const isOver = ({ endedAt }: Entry): boolean => endedAt !== null && endedAt < before;
    // With what is known of pauses now: those are forgotten, too.
    const resolved = this.#resolver(before);
    for (const hold of this.#holds.filter(isOver)) {
      const highest = this.#highest.get(hold.name);
      if (highest === undefined || hold.token > highest.token) this.#highest.set(hold.name, resolved(hold));
      this.#byId.delete(hold.id);
    }
    this.#holds = this.#holds.filter((hold) => !isOver(hold));
    const old = this.#writes.filter(({ hold, at }) => at < before && isOver(hold));
    for (const write of old) {
      const last = this.#lastWrite.get(write.hold.name);
      const moves = write.accepted && (last === undefined || write.hold.floor >= last.hold.floor);
      if (moves) this.#lastWrite.set(write.hold.name, { ...write, hold: resolved(write.hold) });
    }
    const gone = new Set(old);
    this.#writes = this.#writes.filter((write) => !gone.has(write));
    this.#pauses = this.#pauses.filter(({ to }) => to > before - KEEP_MS);
    for (const [key, write] of this.#underWay) if (gone.has(write)) this.#underWay.delete(key);
  }
}
