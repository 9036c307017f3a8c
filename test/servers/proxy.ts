import { connect, createServer, type Server, type Socket } from "node:net";
import { pause } from "./process.js";

type State = {
  port: number;
  open: boolean;
  stalled: boolean;
  deaf: boolean;
  lateMs: number;
  /** Whose calls are not taken, by the port that they come from. */
  refuses: (callerPort: number) => boolean;
  /** Connections that are dead although neither end knows it. */
  readonly hushed: WeakSet<Socket>;
  /** How many messages of clients went nowhere. */
  swallowed: number;
};

const NOBODY = (): boolean => false;

/** A wire with a pair of scissors: between a client and a server, on a port of its own. */
export class Proxy {
  readonly port: number;
  readonly #server: Server;
  readonly #sockets: Set<Socket>;
  readonly #state: State;

  private constructor(server: Server, sockets: Set<Socket>, state: State) {
    this.#server = server;
    this.#sockets = sockets;
    this.#state = state;
    this.port = (server.address() as { port: number }).port;
  }

  static async to(targetPort: number): Promise<Proxy> {
    const sockets = new Set<Socket>();
    const state: State = {
      port: targetPort,
      open: true,
      stalled: false,
      deaf: false,
      lateMs: 0,
      refuses: NOBODY,
      hushed: new WeakSet(),
      swallowed: 0,
    };
    const server = createServer((near) => {
      if (!state.open || state.refuses(near.remotePort ?? 0)) {
        near.destroy();
        return;
      }
      const far = connect(state.port, "127.0.0.1");
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        sockets.add(one);
        one.setNoDelay(true);
        const handOn = inOrder((data) => other.write(data));
        one.on("data", (data: Buffer) => {
          if (state.hushed.has(one)) state.swallowed += Number(one === near);
          else if (one === near) handOn(data, 0);
          else if (!state.deaf) handOn(data, state.lateMs);
        });
        one.on("error", () => other.destroy());
        one.on("close", () => {
          sockets.delete(one);
          if (!state.hushed.has(one)) other.destroy();
        });
        if (state.stalled) one.pause();
      }
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new Proxy(server, sockets, state);
  }

  get connections(): number {
    return this.#sockets.size / 2;
  }

  /** Every connection ends, and no new one is accepted. */
  cut(): void {
    this.#state.open = false;
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Nothing goes through any more, and nobody is told. */
  stall(): void {
    this.#state.stalled = true;
    for (const socket of this.#sockets) socket.pause();
  }

  /** On the connections that there are now nothing goes through any more, for good, and nobody is told. New ones work. */
  hush(): void {
    for (const socket of this.#sockets) this.#state.hushed.add(socket);
  }

  /** Connections of clients that are still open on their side. */
  get callers(): number {
    return [...this.#sockets].filter((socket) => socket.localPort === this.port).length;
  }

  get swallowed(): number {
    return this.#state.swallowed;
  }

  /** The server hears everything; what it answers is lost. */
  deafen(): void {
    this.#state.deaf = true;
  }

  /** What the server answers from now on takes this long to arrive. */
  delay(ms: number): void {
    this.#state.lateMs = ms;
  }

  /** As `cut`, for some callers only. */
  shutOut(refuses: (callerPort: number) => boolean): void {
    this.#state.refuses = refuses;
    for (const socket of this.#sockets) {
      if (socket.localPort === this.port && refuses(socket.remotePort ?? 0)) socket.destroy();
    }
  }

  /** Another server answers at this address from now on; the connections to the old one end. */
  point(port: number): void {
    this.#state.port = port;
    for (const socket of this.#sockets) socket.destroy();
  }

  heal(): void {
    this.#state.open = true;
    this.#state.stalled = false;
    this.#state.deaf = false;
    this.#state.lateMs = 0;
    this.#state.refuses = NOBODY;
    for (const socket of this.#sockets) socket.resume();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Each after its own time, but none before what came earlier: a connection does not reorder. */
function inOrder(write: (data: Buffer) => void): (data: Buffer, lateMs: number) => void {
  let last = Promise.resolve();
  let under = 0;
  return (data, lateMs) => {
    if (lateMs === 0 && under === 0) return write(data);
    under += 1;
    last = Promise.all([last, pause(lateMs)]).then(() => {
      under -= 1;
      write(data);
    });
  };
}
