import type { Clock } from "../../../core/clock.js";
import type { Connections, Hearing, PgClient, PgQuery, PgResult } from "../client.js";
import { guard } from "./guard.js";
import { hearingOn } from "./hearing.js";
import { Queue } from "./queue.js";

/** One connection for everything, which is over when it is over: `pg` does not connect a client again. */
export class ClientConnections implements Connections {
  readonly #client: PgClient;
  readonly #queue: Queue;
  #over = false;

  constructor(client: PgClient, clock: Clock, limitMs: number, silent: () => void) {
    guard(client);
    this.#client = client;
    this.#queue = new Queue(client, clock, limitMs, silent);
    client.on("end", () => (this.#over = true));
  }

  run(query: PgQuery): Promise<PgResult> {
    return this.#queue.run(query);
  }

  async hear(heard: (channel: string, payload: string) => void, ended: () => void): Promise<Hearing | null> {
    if (this.#over) throw new Error("the connection has ended, and a client of pg does not connect again");
    return hearingOn(this.#client, this.#queue, heard, ended, () => {});
  }

  /** The client stays whose it is. */
  close(): void {
    this.#queue.close();
  }
}
