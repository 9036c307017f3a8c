import assert from "node:assert/strict";
import { SystemClock } from "../../core/clock.js";
import type { Engine, EngineEvent } from "../../core/engine.js";
import type { Unlisten } from "../../core/unlisten.js";
import { settle } from "../fake-clock.js";

type PushEvent = Extract<EngineEvent, { readonly kind: "granted" | "lost" }>;
type Expected = { readonly client: number; readonly text: string; readonly optional: boolean };
type Received = { readonly client: number; readonly text: string };

/**
 * Only a push that never comes is waited for so long; while a failure is made smaller, less long. In many steps: a process
 * that stood still loses one of them, and not all.
 */
const STEP_MS = 200;
const STEPS = 25;
const SHRINKING_STEPS = 4;

/**
 * What was pushed to the two clients, against what the reference pushed: all of that has to arrive, and nothing else. `wake`
 * and `warning` are hints that a store may give at any time.
 */
export class Pushes {
  readonly #clock = new SystemClock();
  readonly #names = new Set<string>();
  readonly #others = new Set<string>();
  #expected: Expected[] = [];
  #received: Received[] = [];
  #wake: () => void = () => {};
  #steps = STEPS;
  /** The highest token that was pushed. */
  highest = 0;

  listen(engine: Engine, client: number): Unlisten {
    return engine.listen((event) => {
      if (event.kind !== "granted" && event.kind !== "lost") return;
      if (event.kind === "granted") this.highest = Math.max(this.highest, event.token);
      // What is left over from earlier names ends some time, and claims that waited there get a push.
      if (this.#names.has(event.name)) this.#received.push({ client, text: textOf(event) });
      else this.#others.add(event.id);
      this.#wake();
    });
  }

  /** From now on only these names count. */
  begin(names: readonly string[]): void {
    this.#names.clear();
    this.#others.clear();
    for (const name of names) this.#names.add(name);
    this.#expected = [];
    this.#received = [];
  }

  /** `optional`: a grant that its client learns from an answer, or that is over before anybody could learn of it. */
  expect(client: number, event: EngineEvent, optional: boolean): void {
    if (event.kind === "granted" || event.kind === "lost")
      this.#expected.push({ client, text: textOf(event), optional: optional && event.kind === "granted" });
  }

  /** Waits until everything that has to be pushed was received. */
  async arrived(): Promise<void> {
    await this.#until(
      () => this.#match(),
      () => `the reference pushed ${this.#missing().join(" and ")}`,
    );
  }

  /** When both have pushed everything: what is left, the reference did not push. */
  checkNoMore(): void {
    this.#match();
    const more = this.#received.map(({ client, text }) => `${text} to client ${client}`);
    assert.deepEqual(more, [], "pushed what the reference did not push");
  }

  /** Waits for any push for this id, which is on none of the names that count. */
  async pushedTo(id: string): Promise<void> {
    await this.#until(
      () => this.#others.has(id),
      () => `a grant was pushed to ${id}`,
    );
  }

  #missing(): string[] {
    return this.#expected.filter(({ optional }) => !optional).map(({ client, text }) => `${text} to client ${client}`);
  }

  #match(): boolean {
    this.#expected = this.#expected.filter(({ client, text }) => {
      const at = this.#received.findIndex((one) => one.client === client && one.text === text);
      if (at >= 0) this.#received.splice(at, 1);
      return at < 0;
    });
    return this.#expected.every(({ optional }) => optional);
  }

  async #until(holds: () => boolean, what: () => string): Promise<void> {
    if (holds()) return;
    await settle();
    for (let step = 0; !holds(); ) {
      if (step === this.#steps) {
        this.#steps = SHRINKING_STEPS;
        assert.fail(`${what()}, and that did not arrive`);
      }
      if (!(await this.#nextPush())) step += 1;
    }
  }

  /** False when the time of one step is over. */
  #nextPush(): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = this.#clock.after(STEP_MS, () => resolve(false));
      this.#wake = () => {
        this.#clock.cancel(timer);
        resolve(true);
      };
    });
  }
}

function textOf(event: PushEvent): string {
  const { kind, name, id } = event;
  const fence = event.kind === "granted" ? { token: event.token, floor: event.floor, live: event.live } : {};
  return JSON.stringify({ kind, name, id, ...fence });
}
