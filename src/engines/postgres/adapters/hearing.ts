import type { Hearing, PgClient, PgNotification } from "../client.js";
import type { Queue } from "./queue.js";

/** Notifications of a connection that has a guard, until it ends or is given up. `leave` says what becomes of the connection then. */
export function hearingOn(
  client: PgClient,
  queue: Queue,
  heard: (channel: string, payload: string) => void,
  ended: () => void,
  leave: () => void,
): Hearing {
  let over = false;
  const onNotification = ({ channel, payload = "" }: PgNotification): void => heard(channel, payload);
  const close = (): void => {
    if (over) return;
    over = true;
    client.removeListener("notification", onNotification);
    client.removeListener("error", onEnd);
    client.removeListener("end", onEnd);
    leave();
  };
  const onEnd = (): void => {
    if (over) return;
    close();
    ended();
  };
  client.on("notification", onNotification);
  client.on("error", onEnd);
  client.on("end", onEnd);
  return {
    run: (query) => queue.run(query),
    processId: client.processID ?? null,
    close,
  };
}
