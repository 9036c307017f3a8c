import { connect, createServer, type Server, type Socket } from "node:net";
import { pause } from "./process.js";

type State = {
  port: number;
  open: boolean;
  stalled: boolean;
  deaf: boolean;
  lateMs: number;
  /** How many bytes of answers a new connection passes on before it ends. */
  endsAfter: number;
  /** Sockets that take everything and pass nothing on, not even their end. */
  silent: Set<Socket>;
  /** Whose calls are not taken, by the port that they come from. */
  refuses: (callerPort: number) => boolean;
};

const NOBODY = (): boolean => false;

/** A wire with a pair of scissors: between a client and a server, on a port of its own. */
export class Proxy {
  readonly port: number;
  readonly #server: Server;
  readonly #sockets: Set<Socket>;
  /** The client's side of each connection, and the server's. */
  readonly #pairs: Map<Socket, Socket>;
  readonly #state: State;

  private constructor(server: Server, sockets: Set<Socket>, pairs: Map<Socket, Socket>, state: State) {
    this.#server = server;
    this.#sockets = sockets;
    this.#pairs = pairs;
    this.#state = state;
    this.port = (server.address() as { port: number }).port;
  }

  static async to(targetPort: number): Promise<Proxy> {
    const sockets = new Set<Socket>();
    const pairs = new Map<Socket, Socket>();
    const state: State = {
      port: targetPort,
      open: true,
      stalled: false,
      deaf: false,
      lateMs: 0,
      endsAfter: Number.POSITIVE_INFINITY,
      silent: new Set(),
      refuses: NOBODY,
    };
    const server = createServer((near) => {
      if (!state.open || state.refuses(near.remotePort ?? 0)) {
        near.destroy();
        return;
      }
      const far = connect(state.port, "127.0.0.1");
      pairs.set(near, far);
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        sockets.add(one);
        one.setNoDelay(true);
        let left = one === near ? Number.POSITIVE_INFINITY : state.endsAfter;
        const handOn = inOrder((data) => {
          other.write(data.subarray(0, left));
          left -= data.length;
          if (left <= 0) other.destroySoon();
        });
        one.on("data", (data: Buffer) => {
          if (state.silent.has(one)) return;
          if (one === near) handOn(data, 0);
          else if (!state.deaf) handOn(data, state.lateMs);
        });
        one.on("error", () => state.silent.has(one) || other.destroy());
        one.on("close", () => {
          sockets.delete(one);
          pairs.delete(one);
          // The end of a silent client ends its connection to the server; its own end is never heard.
          if (!state.silent.has(one) || one === near) other.destroy();
        });
        if (state.stalled) one.pause();
      }
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new Proxy(server, sockets, pairs, state);
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

  /**
   * The connections there are go silent, without an end; new ones work. `which`: by the port that the server sees.
   * `last` is what their clients get to read before that, such as half of an answer.
   */
  silence(which: (serverSeesPort: number) => boolean = () => true, last: string | Buffer = ""): number {
    const chosen = [...this.#pairs].filter(([, far]) => which(far.localPort ?? 0));
    for (const [near, far] of chosen) {
      if (last !== "") near.write(last);
      this.#state.silent.add(near).add(far);
    }
    return chosen.length;
  }

  /** The server hears everything; what it answers is lost. */
  deafen(): void {
    this.#state.deaf = true;
  }

  /** What the server answers from now on takes this long to arrive. */
  delay(ms: number): void {
    this.#state.lateMs = ms;
  }

  /** Each new connection ends after so many bytes of answers, wherever that is in the conversation. */
  endAfter(bytes: number): void {
    this.#state.endsAfter = bytes;
  }

  /** New connections are refused; those there are go on. */
  shutOutNew(): void {
    this.#state.open = false;
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
    this.#state.endsAfter = Number.POSITIVE_INFINITY;
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
