import type { Engine } from "../../core/engine.js";
import { Kit, type Setting } from "../conformance/kit.js";
import { Pushes } from "./pushes.js";
import type { Outcome } from "./reference.js";

export type SharedClock = NonNullable<Setting["clock"]>;

/** Names are never used again, not even by another comparison on the same store. */
let names = 0;

/** Two clients of the store under test, for as many runs as there are. */
export class Session {
  readonly clock: SharedClock;
  readonly engines: readonly [Engine, Engine];
  readonly pushes = new Pushes();
  /** False for a store that does not push: then nothing has to arrive. */
  readonly pushesGrants: boolean;
  /** Requests that were answered by both. */
  compared = 0;
  readonly #kit: Kit;
  #highest = 0;

  private constructor(kit: Kit, clock: SharedClock, engines: readonly [Engine, Engine]) {
    this.#kit = kit;
    this.clock = clock;
    this.engines = engines;
    this.pushesGrants = engines.every(({ guarantees }) => guarantees.wake === "push");
    for (const [client, engine] of engines.entries()) this.pushes.listen(engine, client);
  }

  static async open(setting: Setting, clock: SharedClock): Promise<Session> {
    const kit = new Kit(setting);
    const session = new Session(kit, clock, [await kit.open(), await kit.open()]);
    await session.barrier();
    return session;
  }

  engine(client: number): Engine {
    return this.engines[client === 0 ? 0 : 1];
  }

  /** A number that was never given before. */
  stem(): number {
    return (names += 1);
  }

  highest(): number {
    return Math.max(this.#highest, this.pushes.highest);
  }

  /** Records the tokens that the store answered. */
  record(outcome: Outcome, reserved: number): void {
    const answers = outcome.verb === "claim" ? [outcome.answer] : outcome.verb === "renew" ? outcome.answers : [];
    for (const answer of answers) {
      const isToken = answer.kind === "granted" || answer.kind === "queued";
      if (isToken) this.#highest = Math.max(this.#highest, answer.token + reserved);
    }
  }

  /** A push to each client, made and awaited: everything that was pushed before has arrived then. */
  async barrier(): Promise<void> {
    const owner = { client: "barrier", host: "localhost", pid: 1 };
    const common = { capacity: 1, units: 1, leaseMs: 60_000, wait: true, owner };
    for (const client of [0, 1]) {
      const stem = this.stem();
      const name = `barrier ${stem}`;
      const [first, second] = [
        { ...common, name, id: `first-${stem}` },
        { ...common, name, id: `second-${stem}` },
      ];
      const [other, own] = [this.engine(1 - client), this.engine(client)];
      this.record({ verb: "claim", answer: await other.claim(first) }, 0);
      this.record({ verb: "claim", answer: await own.claim(second) }, 0);
      await other.release({ name, id: first.id, tombstone: "never" });
      if (this.pushesGrants) await this.pushes.pushedTo(second.id);
      await own.release({ name, id: second.id, tombstone: "never" });
    }
  }

  async close(): Promise<void> {
    await this.#kit.close();
  }
}
