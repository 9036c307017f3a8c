import { EventEmitter } from "node:events";
import { Framer, Packet, PacketReader } from "../../src/engines/zookeeper/drivers/wire/jute.js";

/** The network in the test's hand: what a client of ZooKeeper sends, and what it is answered. */

export type Asked = { readonly xid: number; readonly type: number; readonly rest: PacketReader };

const nodeStat = (zxid: bigint): Packet =>
  new Packet().long(zxid).long(zxid).long(0n).long(0n).int(0).int(0).int(0).long(0n).int(0).int(0).long(zxid);

/** A node's stat, as it stands in an answer. */
export const statBytes = (zxid = 1n): Buffer => nodeStat(zxid).finish().subarray(4);

export const intBytes = (...values: readonly number[]): Buffer => {
  const packet = new Packet();
  for (const value of values) packet.int(value);
  return packet.finish().subarray(4);
};

/** What a transaction answers that took effect, and one of whose parts failed with these codes. */
export const DONE = new Packet().int(13).flag(false).int(0).finish().subarray(4);
export const failedBytes = (...codes: readonly number[]): Buffer => {
  const packet = new Packet();
  for (const code of codes) packet.int(-1).flag(false).int(code).int(code);
  return packet.int(-1).flag(true).int(-1).finish().subarray(4);
};

/** One connection, seen from the server. */
export class Line extends EventEmitter {
  readonly options: unknown;
  /** What left in one piece. */
  readonly pieces: Buffer[] = [];
  readonly asked: Asked[] = [];
  greeting: { readonly lastZxid: bigint; readonly timeoutMs: number; readonly sessionId: bigint } | null = null;
  destroyed = false;
  delays = true;
  readonly #framer = new Framer();
  #corked: Buffer[] | null = null;

  constructor(options: unknown) {
    super();
    this.options = options;
  }

  setNoDelay(noDelay: boolean): void {
    this.delays = !noDelay;
  }

  cork(): void {
    this.#corked = [];
  }

  uncork(): void {
    const whole = Buffer.concat(this.#corked ?? []);
    this.#corked = null;
    this.#sent(whole);
  }

  write(bytes: Buffer): void {
    if (this.#corked !== null) this.#corked.push(bytes);
    else this.#sent(bytes);
  }

  destroy(): void {
    this.destroyed = true;
    process.nextTick(() => this.emit("close"));
  }

  /** The server takes the connection. */
  accept(): this {
    this.emit("connect");
    return this;
  }

  greet(sessionMs: number, sessionId = 7n): this {
    const password = Buffer.alloc(16, Number(sessionId % 100n));
    return this.send(new Packet().int(0).int(sessionMs).long(sessionId).bytes(password).flag(false).finish());
  }

  /** To the oldest that is not answered yet. */
  answer(zxid: bigint, code = 0, body: Buffer = Buffer.alloc(0)): this {
    const asked = this.asked.shift();
    if (asked === undefined) throw new Error("nothing was asked");
    return this.answerTo(asked.xid, zxid, code, body);
  }

  answerTo(xid: number, zxid: bigint, code = 0, body: Buffer = Buffer.alloc(0)): this {
    const head = new Packet().int(xid).long(zxid).int(code).finish().subarray(4);
    return this.send(framed(Buffer.concat([head, body])));
  }

  event(type: number, path: string): this {
    return this.send(new Packet().int(-1).long(-1n).int(0).int(type).int(3).text(path).finish());
  }

  send(bytes: Buffer): this {
    this.emit("data", bytes);
    return this;
  }

  hangUp(): void {
    this.emit("close");
  }

  #sent(bytes: Buffer): void {
    this.pieces.push(bytes);
    for (const packet of this.#framer.push(bytes)) {
      const reader = new PacketReader(packet);
      if (this.greeting === null) {
        reader.int();
        this.greeting = { lastZxid: reader.long(), timeoutMs: reader.int(), sessionId: reader.long() };
      } else this.asked.push({ xid: reader.int(), type: reader.int(), rest: reader });
    }
  }
}

export function framed(body: Buffer): Buffer {
  return Buffer.concat([intBytes(body.length), body]);
}
