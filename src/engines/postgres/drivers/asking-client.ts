// Beyond one file per library: a client of `pg` that asks who it connects as. The library itself asks for a password alone, and
// only after it has sent the user.
import type { AskCredentials } from "../../../engine-kit/credentials.js";
import type { PgClient } from "../driver.js";

/** What is used of a `Client` of `pg` beside what the driver calls. */
interface Connecting extends PgClient {
  user: string | undefined;
  password: string | null;
  readonly connectionParameters: { user: string | undefined; password: string | null };
}

// A class that another extends takes any arguments (TypeScript).
// oxlint-disable-next-line typescript/no-explicit-any
export type ClientClass = new (...args: any[]) => Connecting;

export function askingClient(Client: ClientClass, ask: AskCredentials): ClientClass {
  return class extends Client {
    /** With a callback for pools. */
    override connect(callback?: (error: unknown, client?: unknown) => void): Promise<unknown> {
      const connected = this.#connectAs(() => super.connect());
      if (callback === undefined) return connected;
      connected.then(
        () => callback(null, this),
        (error: unknown) => callback(error),
      );
      return connected.catch(() => {});
    }

    async #connectAs(connect: () => Promise<unknown>): Promise<unknown> {
      const { username, password } = await ask();
      // Given up meanwhile: connecting would bring it back to life.
      if (this.connection?.stream?.destroyed === true) throw new Error("the connection was given up");
      if (username !== undefined) this.user = this.connectionParameters.user = username;
      this.password = this.connectionParameters.password = password;
      return connect();
    }
  };
}
