import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock, Timer } from "../../core/clock.js";
import type { Driver, ListeningConnection, OnNotification } from "./driver.js";
import { quoted } from "./statements.js";

/** A connection that was cut without a message is noticed by a query: at the latest after this. */
const PROBE_EVERY_MS = 5_000;

export type ListenerParts = {
  readonly driver: Driver;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly onNotification: OnNotification;
  /** The connection did not answer: notifications are missed until there is a new one. */
  readonly onSilence: () => void;
  /** The connection was made anew: notifications in between were missed. */
  readonly onReconnect: () => void;
};

/** The one connection on which this client listens (`pitfalls.md` 13). It is replaced when it ends. */
export class Listener {
  readonly #parts: ListenerParts;
  readonly #channels = new Set<string>();
  #connection: ListeningConnection | null = null;
  #timer: Timer | null = null;
  /** The connection that was probed and has not answered yet. */
  #probing: ListeningConnection | null = null;
  #failures = 0;
  #closed = false;

  constructor(parts: ListenerParts) {
    this.#parts = parts;
  }

  /**
   * False: there is no connection of our own to the server, but a pooler between us, which gives each statement to another
   * connection: notifications do not arrive here. The number of the server process tells.
   */
  open(channel: string): Promise<boolean> {
    this.#channels.add(channel);
    return this.#connect();
  }

  /** Listen to one more channel, on the same connection. `listening` is called when the server does so. */
  add(channel: string, listening: () => void): void {
    this.#channels.add(channel);
    this.#send("LISTEN", channel, listening);
  }

  remove(channel: string): void {
    this.#channels.delete(channel);
    this.#send("UNLISTEN", channel);
  }

  /** Another connection was silent: this one may be so too. */
  probe(): void {
    const connection = this.#connection;
    if (connection === null || this.#probing === connection) return;
    this.#stop();
    this.#ask(connection);
  }

  close(): void {
    this.#closed = true;
    this.#stop();
    for (const channel of this.#channels) this.#send("UNLISTEN", channel);
    this.#connection?.close();
    this.#connection = null;
  }

  #send(verb: "LISTEN" | "UNLISTEN", channel: string, done = (): void => {}): void {
    // When this fails the connection is broken, which is noticed: a new one listens to everything.
    void this.#connection?.run({ text: `${verb} ${quoted(channel)}` }).then(done, () => {});
  }

  async #connect(): Promise<boolean> {
    const { driver, onNotification } = this.#parts;
    let mine: ListeningConnection | null = null;
    let over = false;
    const onEnd = (): void => {
      over = true;
      // Of a connection that was given up earlier: nothing to do (`pitfalls.md` 43).
      if (mine === null || mine !== this.#connection) return;
      this.#connection = null;
      this.#reconnect();
    };
    mine = await driver.listen(onNotification, onEnd);
    if (mine === null) return false;
    const { processId } = mine;
    try {
      const { rows } = await mine.run({ text: "SELECT pg_backend_pid()::text AS pid" });
      if (String(rows[0]?.pid) !== String(processId)) {
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
    this.#connection = mine;
    this.#failures = 0;
    this.#askLater(mine);
    return true;
  }

  #askLater(connection: ListeningConnection): void {
    this.#after(PROBE_EVERY_MS, () => this.#ask(connection));
  }

  #ask(connection: ListeningConnection): void {
    this.#probing = connection;
    const answered = (then: () => void): void => {
      this.#probing = null;
      if (this.#connection === connection) then();
    };
    connection.run({ text: "SELECT 1" }).then(
      () => answered(() => this.#askLater(connection)),
      () =>
        answered(() => {
          this.#connection = null;
          connection.close();
          this.#parts.onSilence();
          this.#reconnect();
        }),
    );
  }

  #reconnect(): void {
    if (this.#closed) return;
    this.#after(backoffMs(this.#failures, this.#parts.chance), () => {
      this.#connect().then(
        () => this.#closed || this.#parts.onReconnect(),
        () => {
          this.#failures += 1;
          this.#reconnect();
        },
      );
    });
  }

  #after(ms: number, run: () => void): void {
    this.#stop();
    this.#timer = this.#parts.clock.after(ms, run);
  }

  #stop(): void {
    if (this.#timer !== null) this.#parts.clock.cancel(this.#timer);
  }
}
