import {
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { createServer as createPlainServer, type Server, type Socket } from "node:net";

/** What becomes of a call: gRPC over HTTP/2, or nothing like it. */
export type Behaviour = (stream: ServerHttp2Stream, path: string, headers?: IncomingHttpHeaders) => void;

/** A message as gRPC frames it: whether it is compressed, its length, its bytes. */
export function frame(message: Uint8Array, length = message.length, compressed = 0): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(compressed, 0);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, message]);
}

/** Answers every call with these bytes, and ends it with this status; null: it goes on for ever. */
export function answering(bytes: Uint8Array, status: number | null = 0, message = ""): Behaviour {
  return (stream) => {
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": String(status), "grpc-message": message }));
    if (status === null) stream.write(bytes);
    else stream.end(bytes);
  };
}

/** Only a status: no message, and no headers before it. */
export function refusing(status: number, message: string): Behaviour {
  return (stream) =>
    stream.respond(
      { ":status": 200, "content-type": "application/grpc", "grpc-status": String(status), "grpc-message": message },
      { endStream: true },
    );
}

/** What a web server answers that knows nothing of gRPC. */
export function plainly(status: number, body: string): Behaviour {
  return (stream) => {
    stream.respond({ ":status": status, "content-type": "text/html" });
    stream.end(body);
  };
}

/** A server that speaks HTTP/2 and answers every call in the same wrong way. */
export class FakeGrpc {
  behaviour: Behaviour;
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();
  calls = 0;

  private constructor(behaviour: Behaviour) {
    this.behaviour = behaviour;
    this.#server = createServer();
    this.#server.on("session", (session) => {
      this.#sessions.add(session);
      session.on("error", () => {});
      session.on("close", () => this.#sessions.delete(session));
    });
    this.#server.on("stream", (stream, headers) => {
      this.calls += 1;
      stream.on("error", () => {});
      this.behaviour(stream, headers[":path"] ?? "", headers);
    });
  }

  static async start(behaviour: Behaviour): Promise<FakeGrpc> {
    const fake = new FakeGrpc(behaviour);
    await new Promise<void>((resolve) => fake.#server.listen(0, "127.0.0.1", resolve));
    return fake;
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  /** Every connection is told to go elsewhere. */
  goAway(): void {
    for (const session of this.#sessions) session.goaway();
  }

  async stop(): Promise<void> {
    for (const session of this.#sessions) session.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** A server that says these bytes to whoever connects, and nothing else. */
export async function babbling(bytes: Uint8Array): Promise<{ readonly port: number; stop(): Promise<void> }> {
  const sockets = new Set<Socket>();
  const server: Server = createPlainServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.write(bytes);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as { port: number }).port,
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
