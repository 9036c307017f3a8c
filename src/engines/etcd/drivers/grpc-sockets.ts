/**
 * The sockets below a gRPC channel. The library has no way to end them: a channel that is closed while a server has taken its
 * connection and does not finish HTTP/2's greeting keeps that socket for ever (seen with @grpc/grpc-js 1.14.7, whose connector
 * is never shut down), one more for each attempt. So each is noted on its way through the credentials, where the library
 * secures it. Where a version has no such step nothing is noted, and the library does as it does.
 */
export type Sockets = { readonly credentials: object; destroy(): void };

type Socket = { destroy(): void; once(event: "close", listener: () => void): unknown };
type Connector = { connect(socket: Socket, ...more: unknown[]): unknown };
/** The library's own name for that step. */
const STEP = "_createSecureConnector";
type Credentials = { [STEP]?: (...args: unknown[]) => Connector };

/** These credentials are for one channel. */
export function noting(credentials: object): Sockets {
  const sockets = new Set<Socket>();
  let over = false;
  const library = credentials as Credentials;
  const create = library[STEP]?.bind(credentials);
  if (create !== undefined) {
    library[STEP] = (...args) => {
      const connector = create(...args);
      const connect = connector.connect.bind(connector);
      connector.connect = (socket, ...more) => {
        sockets.add(socket);
        socket.once("close", () => sockets.delete(socket));
        // Made when nobody wanted it any more.
        if (over) socket.destroy();
        return connect(socket, ...more);
      };
      return connector;
    };
  }
  const destroy = (): void => {
    over = true;
    for (const socket of sockets) socket.destroy();
  };
  return { credentials, destroy };
}
