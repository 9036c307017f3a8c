// Beyond one file per library: how the clients of all of them are connected.
import { onAbort } from "../../../core/abort.js";
import type { Clock, Timer } from "../../../core/clock.js";
import { EngineRefusedError, EngineUnavailableError } from "../../../core/errors.js";
import type { RedisDriver } from "../driver.js";
import { translateError } from "../errors.js";

/** What the clients that we make have in common, whichever library they are of. */
export const CONNECT_TIMEOUT_MS = 5_000;
const RECONNECT_MAX_MS = 1_000;
export const reconnectDelayMs = (attempt: number): number => Math.min(RECONNECT_MAX_MS, 25 * 2 ** attempt);

/** When connecting has taken too long, or nobody wants the connection any more. */
export type ConnectLimits = { readonly clock: Clock; readonly closed: AbortSignal | undefined };

type Connectable = {
  connect(): Promise<unknown>;
  on(event: string, listener: (event?: unknown) => void): unknown;
};

/** Connects a client that we made. The first connection must succeed: a wrong address is an error at once, not an endless wait. */
export async function connectDriver<Driver extends RedisDriver>(
  driver: Driver,
  client: Connectable,
  { clock, closed }: ConnectLimits,
): Promise<Driver> {
  let failure: unknown;
  let timer: Timer | undefined;
  let unlisten = (): void => {};
  try {
    await new Promise<unknown>((resolve, reject) => {
      // Without a listener the libraries print, or throw.
      const failed = (cause?: unknown): void => {
        failure ??= cause;
        // Of several hosts the others may answer; of one, the library would go on trying for ever.
        if (driver.topology === "single") reject(cause);
      };
      client.on("error", failed);
      timer = clock.after(2 * CONNECT_TIMEOUT_MS, () => reject(new Error("no connection in time")));
      if (closed !== undefined) unlisten = onAbort(closed, () => reject(new Error("closed")));
      client.connect().then(resolve, reject);
    });
    return driver;
  } catch (cause) {
    await driver.close();
    const error = translateError(failure ?? cause);
    throw error instanceof EngineRefusedError ? error : new EngineUnavailableError("redis", "connecting", error);
  } finally {
    unlisten();
    if (timer !== undefined) clock.cancel(timer);
  }
}

/** Connects one more connection of a client. If that fails or is cancelled the connection is ended: it would stay half open. */
export async function connectOrEnd(
  connection: { connect(): Promise<unknown> },
  cancelled: AbortSignal,
  end: () => void,
): Promise<void> {
  const unlisten = onAbort(cancelled, end);
  try {
    await connection.connect();
  } catch (error) {
    end();
    throw error;
  } finally {
    unlisten();
  }
}
