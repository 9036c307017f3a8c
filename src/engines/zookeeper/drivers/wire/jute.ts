import type { Stat } from "../../driver.js";

/** ZooKeeper's serialisation: big-endian numbers, lengths before bytes, a length before each packet. */
export class Packet {
  #buffer = Buffer.allocUnsafe(256);
  /** The first four bytes are for the length. */
  #at = 4;

  int(value: number): this {
    const at = this.#room(4);
    this.#buffer.writeInt32BE(value, at);
    return this;
  }

  long(value: bigint): this {
    const at = this.#room(8);
    this.#buffer.writeBigInt64BE(value, at);
    return this;
  }

  flag(value: boolean): this {
    const at = this.#room(1);
    this.#buffer.writeUInt8(value ? 1 : 0, at);
    return this;
  }

  bytes(value: Buffer): this {
    this.int(value.length);
    const at = this.#room(value.length);
    value.copy(this.#buffer, at);
    return this;
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  list<T>(values: readonly T[], write: (value: T) => void): this {
    this.int(values.length);
    values.forEach(write);
    return this;
  }

  finish(): Buffer {
    this.#buffer.writeInt32BE(this.#at - 4, 0);
    return this.#buffer.subarray(0, this.#at);
  }

  /** Asked for first: the buffer may be another one after it. */
  #room(bytes: number): number {
    const at = this.#at;
    this.#at += bytes;
    if (this.#at > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#at, 2 * this.#buffer.length));
      this.#buffer.copy(larger, 0, 0, at);
      this.#buffer = larger;
    }
    return at;
  }
}

export class PacketReader {
  readonly #buffer: Buffer;
  #at = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  get left(): number {
    return this.#buffer.length - this.#at;
  }

  int(): number {
    this.#at += 4;
    return this.#buffer.readInt32BE(this.#at - 4);
  }

  long(): bigint {
    this.#at += 8;
    return this.#buffer.readBigInt64BE(this.#at - 8);
  }

  flag(): boolean {
    this.#at += 1;
    return this.#buffer.readUInt8(this.#at - 1) !== 0;
  }

  bytes(): Buffer {
    const length = this.#count(1);
    this.#skip(length);
    return this.#buffer.subarray(this.#at - length, this.#at);
  }

  text(): string {
    return this.bytes().toString();
  }

  /** Of things that begin with a length of their own. */
  list<T>(read: () => T): T[] {
    return Array.from({ length: this.#count(4) }, read);
  }

  stat(): Stat {
    const [czxid, mzxid] = [zxidNumber(this.long()), zxidNumber(this.long())];
    // Created and modified at: the server's wall clock, which nothing here depends on.
    this.#skip(16);
    const version = this.int();
    // The versions of the children and of the rights.
    this.#skip(8);
    const ephemeralOwner = BigInt.asUintN(64, this.long()).toString(16);
    // Length of the data, number of children, the last change to the children.
    this.#skip(16);
    return { czxid, mzxid, version, ephemeralOwner };
  }

  /** How many there are, each of so many bytes at least; −1 stands for none. What the packet cannot hold is not believed. */
  #count(bytesEach: number): number {
    const count = this.int();
    if (count < -1 || count * bytesEach > this.left)
      throw new RangeError(`a packet that has ${this.left} bytes left says ${count}`);
    return Math.max(0, count);
  }

  #skip(bytes: number): void {
    if (bytes > this.left) throw new RangeError("a packet ends too early");
    this.#at += bytes;
  }
}

/** Far more than any server sends; what claims to be larger is no ZooKeeper. */
const PACKET_MAX = 64 * 1024 * 1024;

/** Cuts what comes over the wire into packets. */
export class Framer {
  /** No packet is larger. */
  limit = PACKET_MAX;
  #pieces: Buffer[] = [];
  #size = 0;

  *push(piece: Buffer): Generator<Buffer> {
    this.#pieces.push(piece);
    this.#size += piece.length;
    while (this.#size >= 4) {
      const first = this.#first(4);
      const length = first.readInt32BE(0);
      if (length <= 0 || length > this.limit) throw new RangeError(`a packet of ${length} bytes`);
      if (this.#size < 4 + length) return;
      const whole = this.#first(4 + length);
      const rest = whole.subarray(4 + length);
      this.#pieces[0] = rest;
      this.#size -= 4 + length;
      if (rest.length === 0) this.#pieces.shift();
      yield whole.subarray(4, 4 + length);
    }
  }

  /** The first piece, joined with as many others as it takes. */
  #first(bytes: number): Buffer {
    const [first] = this.#pieces;
    if (first !== undefined && first.length >= bytes) return first;
    const joined = Buffer.concat(this.#pieces);
    this.#pieces = [joined];
    return joined;
  }
}

/** A zxid is an epoch and a counter, 32 bits each: a safe integer for the first two million leaders. */
function zxidNumber(zxid: bigint): number {
  const number = Number(zxid);
  if (!Number.isSafeInteger(number)) throw new Error(`transaction id ${zxid} is too large to be a token`);
  return number;
}
