import { connect as connectPlain, isIP, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import type { Clock, Timer } from "../../../core/clock.js";
import { CODE, ZooKeeperError } from "../client.js";
import { Framer, PacketReader } from "./jute.js";
import { connectPacket, type Handshake, ping, type Request, readHandshake, requestPacket, XID } from "./protocol.js";

export type Host = { readonly host: string; readonly port: number };

/** What a connection tells: nothing more after `closed`. */
export type Telling = {
  /** The server's answer to our greeting, before anything else. */
  greeted(handshake: Handshake): void;
  changed(type: number, path: string): void;
  closed(cause: Error): void;
};

type Waiting = {
  readonly xid: number;
  readonly request: Request<unknown>;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: Error) => void;
};

/** What a server accepts at once unless it is told otherwise (`jute.maxbuffer`). */
const SENT_MAX = 0xfffff;

/** The largest xid; the next one is 1 again. */
const XID_MAX = 2 ** 31 - 1;

/** One connection to one server, from the greeting to its end. Answers come in the order of the requests. */
export class Connection {
  lastZxid: bigint;
  readonly #clock: Clock;
  readonly #socket: Socket;
  readonly #tell: Telling;
  readonly #framer = new Framer();
  readonly #waiting: Waiting[] = [];
  #greeted = false;
  #closed = false;
  #xid = 0;
  /** How long the server may be silent. */
  #patienceMs: number;
  #pingEveryMs = Infinity;
  #heardAt: number;
  #sentAt: number;
  #timer: Timer;

  constructor(
    host: Host,
    tls: ConnectionOptions | undefined,
    greeting: Handshake & { lastZxid: bigint },
    patienceMs: number,
    clock: Clock,
    tell: Telling,
  ) {
    this.lastZxid = greeting.lastZxid;
    this.#clock = clock;
    this.#tell = tell;
    this.#patienceMs = patienceMs;
    this.#heardAt = this.#sentAt = clock.now();
    const servername = isIP(host.host) === 0 ? { servername: host.host } : {};
    this.#socket = tls === undefined ? connectPlain(host) : connectTls({ ...servername, ...tls, ...host });
    this.#socket.setNoDelay(true);
    this.#socket.once(tls === undefined ? "connect" : "secureConnect", () =>
      this.#socket.write(connectPacket(greeting.lastZxid, greeting)),
    );
    this.#socket.on("data", (piece) => this.#heard(piece));
    this.#socket.on("error", (error) => this.end(error));
    this.#socket.on("close", () => this.end(new Error("the server closed the connection")));
    this.#timer = this.#arm();
  }

  ask<T>(request: Request<T>, xid = this.#nextXid()): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new ZooKeeperError(CODE.connectionLoss, request.doing));
      const packet = requestPacket(xid, request);
      // The server would hang up on it, and again each time it is repeated: all that lives by this session would die.
      if (packet.length > SENT_MAX) return reject(new ZooKeeperError(CODE.tooLarge, request.doing));
      this.#waiting.push({ xid, request, resolve: resolve as (answer: unknown) => void, reject });
      this.#send(packet);
    });
  }

  end(cause: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#clock.cancel(this.#timer);
    this.#socket.destroy();
    for (const { request, reject } of this.#waiting.splice(0)) {
      reject(new ZooKeeperError(CODE.connectionLoss, request.doing, { cause }));
    }
    this.#tell.closed(cause);
  }

  #nextXid(): number {
    this.#xid = this.#xid >= XID_MAX ? 1 : this.#xid + 1;
    return this.#xid;
  }

  #send(packet: Buffer): void {
    this.#sentAt = this.#clock.now();
    this.#socket.write(packet);
  }

  #heard(piece: Buffer): void {
    if (this.#closed) return;
    this.#heardAt = this.#clock.now();
    try {
      for (const packet of this.#framer.push(piece)) {
        if (this.#greeted) this.#answered(new PacketReader(packet));
        else this.#greet(new PacketReader(packet));
        if (this.#closed) return;
      }
    } catch (error) {
      // Not ZooKeeper, or not its protocol: nothing that follows can be trusted.
      this.end(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #greet(reader: PacketReader): void {
    const handshake = readHandshake(reader);
    this.#greeted = true;
    // As the Java client: a third of the session for a ping, two thirds for its answer.
    this.#pingEveryMs = handshake.timeoutMs / 3;
    this.#patienceMs = (handshake.timeoutMs * 2) / 3;
    this.#clock.cancel(this.#timer);
    this.#timer = this.#arm();
    this.#tell.greeted(handshake);
  }

  #answered(reader: PacketReader): void {
    const [xid, zxid, code] = [reader.int(), reader.long(), reader.int()];
    if (zxid > this.lastZxid) this.lastZxid = zxid;
    if (xid === XID.ping) return;
    if (xid === XID.event) {
      const [type] = [reader.int(), reader.int()];
      return this.#tell.changed(type, reader.text());
    }
    const [waiting] = this.#waiting;
    if (waiting?.xid !== xid) throw new Error(`an answer to nothing that was asked (${xid})`);
    this.#waiting.shift();
    const { request, resolve, reject } = waiting;
    // A failed transaction answers with the code of each of its parts.
    if (code !== 0 && reader.left === 0) return reject(new ZooKeeperError(code, request.doing));
    try {
      resolve(request.read(reader));
    } catch (cause) {
      reject(new ZooKeeperError(CODE.connectionLoss, request.doing, { cause }));
      throw cause;
    }
  }

  #arm(): Timer {
    const now = this.#clock.now();
    const at = Math.min(this.#heardAt + this.#patienceMs, this.#sentAt + this.#pingEveryMs);
    return this.#clock.after(Math.max(1, at - now), () => this.#look());
  }

  #look(): void {
    const now = this.#clock.now();
    if (now >= this.#heardAt + this.#patienceMs) {
      return this.end(new Error(`the server was silent for ${Math.round(now - this.#heardAt)} ms`));
    }
    if (now >= this.#sentAt + this.#pingEveryMs) this.#send(requestPacket(XID.ping, ping));
    this.#timer = this.#arm();
  }
}
