import { connect, createServer, type Server, type Socket } from "node:net";
import { pause } from "./process.js";

type State = {
  port: number;
  open: boolean;
  stalled: boolean;
  deaf: boolean;
  lateMs: number;
  /** How many bytes a second go each way, over all connections, and when the last of them has gone: to the server, to clients. */
  bytesPerSecond: number;
  readonly busyUntil: { near: number; far: number };
  /** Whose calls are not taken, by the port that they come from. */
  refuses: (callerPort: number) => boolean;
  /** A new connection ends after so many bytes of the server's answers, with a reset or not. */
  endsAfter: { readonly bytes: number; readonly reset: boolean } | null;
  /** Sockets that take everything and pass nothing on, not even their end: neither side knows that the other is gone. */
  readonly silent: WeakSet<Socket>;
  /** How many messages of clients went nowhere. */
  swallowed: number;
  /** By the client's side of a connection: what it sent, which is on its way. */
  readonly underWay: Map<Socket, { readonly far: Socket; readonly sent: Buffer[] }>;
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
      bytesPerSecond: Infinity,
      busyUntil: { near: 0, far: 0 },
      refuses: NOBODY,
      endsAfter: null,
      silent: new WeakSet(),
      swallowed: 0,
      underWay: new Map(),
    };
    const server = createServer((near) => {
      if (!state.open || state.refuses(near.remotePort ?? 0)) {
        near.destroy();
        return;
      }
      const far = connect(state.port, "127.0.0.1");
      pairs.set(near, far);
      const passes = upTo(state.endsAfter, near, far);
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        sockets.add(one);
        one.setNoDelay(true);
        const handOn = inOrder((data) => other.write(data));
        one.on("data", (data: Buffer) => {
          const kept = state.underWay.get(one);
          if (kept !== undefined) kept.sent.push(data);
          else if (state.silent.has(one)) state.swallowed += Number(one === near);
          else if (one === near) handOn(data, queueMs(state, "near", data));
          else if (!state.deaf) handOn(passes(data), state.lateMs + queueMs(state, "far", data));
        });
        const isQuiet = (): boolean => state.silent.has(one) || state.underWay.has(one);
        one.on("error", () => isQuiet() || other.destroy());
        one.on("close", () => {
          sockets.delete(one);
          pairs.delete(one);
          if (!isQuiet()) other.destroy();
        });
        if (state.stalled) one.pause();
      }
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new Proxy(server, sockets, pairs, state);
  }

  /** Those that are open on the client's side. */
  get connections(): number {
    return this.#pairs.size;
  }

  /** How many messages of clients went nowhere, because their connection is silent. */
  get swallowed(): number {
    return this.#state.swallowed;
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
   * The connections there are go silent for good, without an end; new ones work. `which`: by the port that the server sees.
   * `last` is what their clients get to read before that, such as half of an answer. Tells how many there were.
   */
  silence(which: (serverSeesPort: number) => boolean = () => true, last: string | Buffer = ""): number {
    const chosen = [...this.#pairs].filter(([, far]) => which(far.localPort ?? 0));
    for (const [near, far] of chosen) {
      if (last !== "") near.write(last);
      this.#state.silent.add(near).add(far);
    }
    return chosen.length;
  }

  /** What clients send from now on, on the connections there are, stays under way; the server is told of no end either. */
  keepUnderWay(): void {
    for (const [near, far] of this.#pairs) this.#state.underWay.set(near, { far, sent: [] });
  }

  /** How many messages are under way. */
  get underWay(): number {
    return [...this.#state.underWay.values()].reduce((sum, { sent }) => sum + sent.length, 0);
  }

  /** The clients of what is under way find their connections ended. */
  dropClients(): void {
    for (const near of this.#state.underWay.keys()) near.destroy();
  }

  /** What is under way arrives now. Tells what became of each connection: the server answered on it, or has ended it. */
  async arrive(): Promise<("answered" | "ended")[]> {
    const all = [...this.#state.underWay];
    this.#state.underWay.clear();
    return Promise.all(
      all.map(async ([near, { far, sent }]) => {
        const outcome = await new Promise<"answered" | "ended">((resolve) => {
          if (far.destroyed) return resolve("ended");
          far.once("data", () => resolve("answered"));
          far.once("close", () => resolve("ended"));
          far.write(Buffer.concat(sent));
        });
        if (near.destroyed) far.destroy();
        return outcome;
      }),
    );
  }

  /** Connections made from now on end after so many bytes of the server's answers, wherever that is in the conversation. */
  endAfter(bytes: number, reset = false): void {
    this.#state.endsAfter = { bytes, reset };
  }

  /** The server hears everything; what it answers is lost. */
  deafen(): void {
    this.#state.deaf = true;
  }

  /** What the server answers from now on takes this long to arrive. */
  delay(ms: number): void {
    this.#state.lateMs = ms;
  }

  /** So much goes through each way from now on, all connections together. */
  throttle(bytesPerSecond: number): void {
    this.#state.bytesPerSecond = bytesPerSecond;
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
    this.#state.bytesPerSecond = Infinity;
    this.#state.refuses = NOBODY;
    this.#state.endsAfter = null;
    for (const socket of this.#sockets) socket.resume();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** What a connection that ends after so many bytes passes on: all of it up to the very byte. */
function upTo(ends: State["endsAfter"], near: Socket, far: Socket): (data: Buffer) => Buffer {
  if (ends === null) return (data) => data;
  let answered = 0;
  return (data) => {
    const part = data.subarray(0, Math.max(0, ends.bytes - answered));
    answered += data.length;
    if (answered < ends.bytes) return part;
    far.destroy();
    if (ends.reset) near.resetAndDestroy();
    else near.end(part, () => near.destroy());
    return part.subarray(part.length);
  };
}

/** How long these bytes take to go through, behind those that came before them. */
function queueMs({ bytesPerSecond, busyUntil }: State, side: "near" | "far", { length }: Buffer): number {
  if (bytesPerSecond === Infinity) return 0;
  const now = performance.now();
  busyUntil[side] = Math.max(now, busyUntil[side]) + (1000 * length) / bytesPerSecond;
  return busyUntil[side] - now;
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
