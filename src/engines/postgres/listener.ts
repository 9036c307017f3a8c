import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock, Timer } from "../../core/clock.js";
import type { Connections, Hearing } from "./client.js";

/** A connection that was cut without a word is noticed by a question: at the latest after this. */
const HEARTBEAT_MS = 5_000;

export type ListenerParts = {
  readonly connections: Connections;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly heard: (channel: string, payload: string) => void;
  /** The connection did not answer: what was said there is not heard, until there is a new one. */
  readonly silent: () => void;
  /** The connection was made anew: what was said in between was missed. */
  readonly back: () => void;
};

/** The one connection on which this client hears (`pitfalls.md` 13), kept up. */
export class Listener {
  readonly #parts: ListenerParts;
  readonly #channels = new Set<string>();
  #hearing: Hearing | null = null;
  #timer: Timer | null = null;
  /** The connection that was asked and has not answered yet. */
  #probing: Hearing | null = null;
  #failures = 0;
  #closed = false;

  constructor(parts: ListenerParts) {
    this.#parts = parts;
  }

  /**
   * False: there is no connection of our own to the server, but a pooler between us, which gives each statement to another
   * connection; what is said there is not heard here. Told by the number of the server process.
   */
  async open(channel: string): Promise<boolean> {
    this.#channels.add(channel);
    const direct = await this.#connect();
    if (!direct) this.close();
    return direct;
  }

  /** Hear one more channel, on the same connection. */
  add(channel: string): void {
    this.#channels.add(channel);
    this.#tell("LISTEN", channel);
  }

  remove(channel: string): void {
    this.#channels.delete(channel);
    this.#tell("UNLISTEN", channel);
  }

  /** Another connection was silent: this one may be so too. */
  probe(): void {
    const hearing = this.#hearing;
    if (hearing === null || this.#probing === hearing) return;
    this.#stop();
    this.#ask(hearing);
  }

  close(): void {
    this.#closed = true;
    this.#stop();
    for (const channel of this.#channels) this.#tell("UNLISTEN", channel);
    this.#hearing?.close();
    this.#hearing = null;
  }

  /** When this fails the connection is broken, which is noticed: a new one listens to everything. */
  #tell(verb: "LISTEN" | "UNLISTEN", channel: string): void {
    void this.#hearing?.run({ text: `${verb} ${quoted(channel)}` }).catch(() => {});
  }

  async #connect(): Promise<boolean> {
    const { connections, heard } = this.#parts;
    let mine: Hearing | null = null;
    let over = false;
    const ended = (): void => {
      over = true;
      // Of a connection that was given up earlier: nothing to do (`pitfalls.md` 43).
      if (mine === null || mine !== this.#hearing) return;
      this.#hearing = null;
      this.#again();
    };
    mine = await connections.hear(heard, ended);
    if (mine === null) return false;
    const { processId } = mine;
    try {
      const { rows } = await mine.run({ text: "SELECT pg_backend_pid()::text AS pid" });
      if (processId === null || String(rows[0]?.pid) !== String(processId)) {
        mine.close();
        return false;
      }
      for (const channel of this.#channels) await mine.run({ text: `LISTEN ${quoted(channel)}` });
      if (over) throw new Error("the connection ended while it began to listen");
    } catch (error) {
      mine.close();
      throw error;
    }
    if (this.#closed) {
      mine.close();
      return true;
    }
    this.#hearing = mine;
    this.#failures = 0;
    this.#beat(mine);
    return true;
  }

  #beat(hearing: Hearing): void {
    this.#after(HEARTBEAT_MS, () => this.#ask(hearing));
  }

  #ask(hearing: Hearing): void {
    this.#probing = hearing;
    const answered = (then: () => void): void => {
      if (this.#probing === hearing) this.#probing = null;
      if (this.#hearing === hearing) then();
    };
    hearing.run({ text: "SELECT 1" }).then(
      () => answered(() => this.#beat(hearing)),
      () =>
        answered(() => {
          this.#hearing = null;
          hearing.close();
          this.#parts.silent();
          this.#again();
        }),
    );
  }

  #again(): void {
    if (this.#closed) return;
    this.#after(backoffMs(this.#failures, this.#parts.chance), () => {
      this.#connect().then(
        () => this.#closed || this.#parts.back(),
        () => {
          this.#failures += 1;
          this.#again();
        },
      );
    });
  }

  #after(ms: number, run: () => void): void {
    this.#stop();
    this.#timer = this.#parts.clock.after(ms, () => {
      this.#timer = null;
      run();
    });
  }

  #stop(): void {
    if (this.#timer !== null) this.#parts.clock.cancel(this.#timer);
    this.#timer = null;
  }
}

/** As a part of a statement, which a channel has to be. */
export function quoted(identifier: string): string {
  return `"${identifier.replaceAll('"', '""')}"`;
}
