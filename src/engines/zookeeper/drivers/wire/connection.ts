import { connect as connectPlain, isIP, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import type { Clock, Timer } from "../../../../core/clock.js";
import { behindOthers } from "../../../../core/turn.js";
import type { Host } from "../../../../engine-kit/hosts.js";
import { CODE, ZooKeeperError } from "../../errors.js";
import { Framer, PacketReader } from "./jute.js";
import {
  close,
  connectPacket,
  type Handshake,
  ping,
  type Request,
  readHandshake,
  requestPacket,
  XID,
  xidAfter,
} from "./protocol.js";

/** A connection that is being made, and the event that tells when it is. */
export type Dialled = { readonly socket: Socket; readonly ready: "connect" | "secureConnect" };
export type Dial = (host: Host, tls: ConnectionOptions | undefined) => Dialled;

export const dial: Dial = (host, tls) => {
  if (tls === undefined) return { socket: connectPlain(host), ready: "connect" };
  // A server behind a router is asked for by its name, which an address is none.
  const servername = isIP(host.host) === 0 ? { servername: host.host } : {};
  return { socket: connectTls({ ...servername, ...tls, ...host }), ready: "secureConnect" };
};

/** What a connection tells: nothing more after `closed`. */
export type Telling = {
  /** The server's answer to our greeting, before anything else. */
  greeted(handshake: Handshake): void;
  changed(type: number, path: string): void;
  closed(cause: Error): void;
};

type Waiting = {
  readonly xid: number;
  readonly sentAt: number;
  readonly request: Request<unknown>;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: Error) => void;
};

/** What a server accepts at once unless it is told otherwise (`jute.maxbuffer`). */
const SENT_MAX = 0xfffff;

/** The answer to a greeting has 41 bytes. What claims to be much larger is no ZooKeeper. */
const GREETING_MAX = 1024;

/** Enough for an event loop that was busy, or a program that was stopped, to read what lies there. */
const SECOND_CHECK_MS = 50;

/** A larger one could be no token. */
const ZXID_MAX = BigInt(Number.MAX_SAFE_INTEGER);

/** One connection to one server, from the greeting to its end. Answers come in the order of the requests. */
export class Connection {
  readonly host: Host;
  /** The server's newest transaction, by the last of its answers that could be read. */
  lastZxid: bigint;
  /** When the last whole packet came: a part of one is as good as silence. */
  heardAt: number;
  silent = false;
  readonly #clock: Clock;
  readonly #socket: Socket;
  readonly #tell: Telling;
  readonly #framer = new Framer();
  readonly #packetMax = this.#framer.limit;
  readonly #waiting: Waiting[] = [];
  #gathering = false;
  #greeting = false;
  #greeted = false;
  #closed = false;
  /** Why it is being left, whoever hangs up first. */
  #leftFor: Error | null = null;
  #xid = 0;
  /** How long the server may be silent, and how long it may leave a request unanswered. */
  #silenceMaxMs: number;
  #answerTimeoutMs: number;
  /** It may be this program that did not read: what came meanwhile is read before the server counts as silent. */
  #suspected = false;
  #pingEveryMs = Infinity;
  #answeredAt: number;
  #sentAt: number;
  #timer: Timer;

  constructor(
    host: Host,
    { socket, ready }: Dialled,
    greeting: Handshake & { lastZxid: bigint },
    limits: { readonly greetingMs: number; readonly answerMs: number },
    clock: Clock,
    tell: Telling,
  ) {
    this.host = host;
    this.lastZxid = greeting.lastZxid;
    this.#clock = clock;
    this.#tell = tell;
    this.#silenceMaxMs = limits.greetingMs;
    this.#answerTimeoutMs = limits.answerMs;
    this.#framer.limit = GREETING_MAX;
    this.heardAt = this.#answeredAt = this.#sentAt = clock.now();
    this.#socket = socket;
    this.#socket.setNoDelay(true);
    this.#socket.once(ready, () => {
      this.#greeting = true;
      this.#socket.write(connectPacket(greeting.lastZxid, greeting));
    });
    this.#socket.on("data", (piece) => this.#heard(piece));
    this.#socket.on("error", (error) => this.end(error));
    this.#socket.on("close", () => this.end(new Error("the server closed the connection")));
    this.#timer = this.#arm();
  }

  /** The server took our greeting and ended the connection without a word. */
  get hungUp(): boolean {
    return this.#closed && this.#greeting && !this.#greeted && !this.silent;
  }

  /** When the server can have heard of us last. */
  get usedAt(): number {
    return Math.max(this.heardAt, this.#sentAt);
  }

  ask<T>(request: Request<T>, xid = this.#nextXid()): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new ZooKeeperError(CODE.connectionLoss, request.doing));
      const packet = requestPacket(xid, request);
      // The server would hang up on it, and again each time it is repeated: all that lives by this session would die.
      if (packet.length > SENT_MAX) return reject(new ZooKeeperError(CODE.tooLarge, request.doing));
      this.#waiting.push({
        xid,
        sentAt: this.#clock.now(),
        request,
        resolve: resolve as (answer: unknown) => void,
        reject,
      });
      this.#send(packet);
    });
  }

  /** Ends the session, too: it is not wanted. */
  leave(cause: Error): void {
    this.#leftFor = cause;
    this.ask(close).then(
      () => this.end(cause),
      () => this.end(cause),
    );
  }

  end(why: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    const cause = this.#leftFor ?? why;
    this.#clock.cancel(this.#timer);
    this.#socket.destroy();
    for (const { request, reject } of this.#waiting.splice(0)) {
      reject(new ZooKeeperError(CODE.connectionLoss, request.doing, { cause }));
    }
    this.#tell.closed(cause);
  }

  #nextXid(): number {
    this.#xid = xidAfter(this.#xid);
    return this.#xid;
  }

  #send(packet: Buffer): void {
    this.#sentAt = this.#clock.now();
    // What is asked in one turn of the event loop goes out in one piece.
    if (!this.#gathering) {
      this.#gathering = true;
      this.#socket.cork();
      behindOthers(() => {
        this.#gathering = false;
        this.#socket.uncork();
      });
    }
    this.#socket.write(packet);
  }

  #heard(piece: Buffer): void {
    if (this.#closed) return;
    try {
      for (const packet of this.#framer.push(piece)) {
        this.heardAt = this.#clock.now();
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
    this.#framer.limit = this.#packetMax;
    // As the Java client: a third of the session for a ping, two thirds for its answer.
    this.#pingEveryMs = handshake.timeoutMs / 3;
    this.#silenceMaxMs = (handshake.timeoutMs * 2) / 3;
    // Not so long that what lives by the session is lost before another connection is made; nor so short that a server
    // which is merely slow is never waited for.
    const least = handshake.timeoutMs / 4;
    this.#answerTimeoutMs = Math.min(this.#silenceMaxMs, Math.max(this.#answerTimeoutMs, least));
    this.#clock.cancel(this.#timer);
    this.#timer = this.#arm();
    this.#tell.greeted(handshake);
  }

  #answered(reader: PacketReader): void {
    const [xid, zxid, code] = [reader.int(), reader.long(), reader.int()];
    if (xid === XID.ping) return;
    if (xid === XID.event) {
      const [type] = [reader.int(), reader.int()];
      return this.#tell.changed(type, reader.text());
    }
    const [waiting] = this.#waiting;
    if (waiting?.xid !== xid) throw new Error(`an answer to nothing that was asked (${xid})`);
    this.#waiting.shift();
    this.#answeredAt = this.heardAt;
    const { request, resolve, reject } = waiting;
    try {
      // A failed transaction answers with the code of each of its parts.
      const failed = code !== 0 && reader.left === 0;
      const answer = failed ? undefined : request.read(reader);
      this.#saw(zxid);
      if (failed) reject(new ZooKeeperError(code, request.doing));
      else resolve(answer);
    } catch (cause) {
      reject(new ZooKeeperError(CODE.connectionLoss, request.doing, { cause }));
      throw cause;
    }
  }

  /**
   * Servers with smaller transaction ids than the one that we saw last will not have us: so it is taken only from an answer
   * that was asked for and could be read, and the next such answer corrects it. 0: the answer does not say.
   */
  #saw(zxid: bigint): void {
    if (zxid < 0n || zxid > ZXID_MAX) throw new RangeError(`a transaction id of ${zxid}`);
    if (zxid !== 0n) this.lastZxid = zxid;
  }

  /** Since when a request waits while no other is answered: answered pings alone do not show a good server. */
  get #unansweredSince(): number {
    const [oldest] = this.#waiting;
    return oldest === undefined ? Infinity : Math.max(this.#answeredAt, oldest.sentAt);
  }

  #arm(): Timer {
    const now = this.#clock.now();
    const unansweredAt = Math.min(now, this.#unansweredSince) + this.#answerTimeoutMs;
    const at = Math.min(this.heardAt + this.#silenceMaxMs, unansweredAt, this.#sentAt + this.#pingEveryMs);
    return this.#clock.after(Math.max(1, at - now), () => this.#checkSilence());
  }

  #checkSilence(): void {
    const now = this.#clock.now();
    const silentMs = Math.ceil(now - this.heardAt);
    const unansweredMs = Math.ceil(now - this.#unansweredSince);
    const [silent, unanswered] = [silentMs >= this.#silenceMaxMs, unansweredMs >= this.#answerTimeoutMs];
    if (silent || unanswered) {
      if (this.#suspected) {
        return this.#silence(
          silent
            ? `the server was silent for ${silentMs} ms`
            : `the server left a request unanswered for ${unansweredMs} ms`,
        );
      }
      this.#suspected = true;
      this.#timer = this.#clock.after(SECOND_CHECK_MS, () => this.#checkSilence());
      return;
    }
    this.#suspected = false;
    if (now >= this.#sentAt + this.#pingEveryMs) this.#send(requestPacket(XID.ping, ping));
    this.#timer = this.#arm();
  }

  #silence(what: string): void {
    this.silent = true;
    this.end(new Error(what));
  }
}
