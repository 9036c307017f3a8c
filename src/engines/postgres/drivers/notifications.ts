// Beside the drivers, because both use it.
import type { ListeningConnection, OnNotification, PgConnection, PgNotification } from "../driver.js";
import type { StatementQueue } from "./statement-queue.js";

type Handlers = {
  readonly onNotification: OnNotification;
  readonly onEnd: () => void;
  /** What becomes of the connection when it ends or is given up. */
  readonly onClose: () => void;
};

/** The notifications of a connection, until it ends or is given up. */
export function notificationsOf(client: PgConnection, queue: StatementQueue, handlers: Handlers): ListeningConnection {
  let over = false;
  const onNotification = ({ channel, payload = "" }: PgNotification): void => handlers.onNotification(channel, payload);
  const close = (): void => {
    if (over) return;
    over = true;
    client.removeListener("notification", onNotification);
    client.removeListener("error", onEnd);
    client.removeListener("end", onEnd);
    handlers.onClose();
  };
  const onEnd = (): void => {
    close();
    handlers.onEnd();
  };
  client.on("notification", onNotification);
  client.on("error", onEnd);
  client.on("end", onEnd);
  return { run: (query) => queue.run(query), processId: client.processID ?? null, close };
}
