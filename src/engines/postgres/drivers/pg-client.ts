import type { Clock } from "../../../core/clock.js";
import { guardErrors } from "../../../sql/pool-health.js";
import type { Driver, ListeningConnection, OnNotification, PgClient, PgQuery, PgResult } from "../driver.js";
import { notificationsOf } from "./notifications.js";
import { StatementQueue } from "./statement-queue.js";

/** One connection for everything, which is over when it is over: `pg` does not connect a client again. */
export class PgClientDriver implements Driver {
  readonly connections = 1;
  readonly #client: PgClient;
  readonly #queue: StatementQueue;
  #over = false;

  constructor(client: PgClient, clock: Clock, limitMs: number, unanswered: () => void) {
    guardErrors(client);
    this.#client = client;
    this.#queue = new StatementQueue(client, clock, limitMs, unanswered);
    client.on("end", () => (this.#over = true));
  }

  run(query: PgQuery): Promise<PgResult> {
    return this.#queue.run(query);
  }

  async listen(onNotification: OnNotification, onEnd: () => void): Promise<ListeningConnection | null> {
    if (this.#over) throw new Error("the connection has ended, and a client of pg does not connect again");
    return notificationsOf(this.#client, this.#queue, { onNotification, onEnd, onClose: () => {} });
  }

  /** The client stays whose it is. */
  close(): void {
    this.#queue.close();
  }
}
