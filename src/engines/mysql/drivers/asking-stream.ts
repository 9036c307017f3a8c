// Beyond one file per library: connections of `mysql2` that ask who they connect as. The library has no word for it, but lets
// others make the stream, and reads user and password only when the server has greeted.
import { Socket } from "node:net";
import type { AskCredentials } from "../../../engine-kit/credentials.js";
import type { MysqlServer } from "../url.js";

/** What the library knows about the connection that the stream is for; its own copy. */
type ConnectionConfig = { user?: string; password?: string };

/** A socket that is connected when the answer is there. */
export function askingStream({ host, port }: MysqlServer, ask: AskCredentials) {
  return ({ config }: { config: ConnectionConfig }): Socket => {
    const socket = new Socket();
    socket.setNoDelay(true);
    socket.once("connect", () => socket.setKeepAlive(true));
    ask().then(
      ({ username, password }) => {
        // Given up meanwhile: connecting would bring it back to life.
        if (socket.destroyed) return;
        if (username !== undefined) config.user = username;
        config.password = password;
        socket.connect(port, host);
      },
      (error: Error) => socket.destroy(error),
    );
    return socket;
  };
}
