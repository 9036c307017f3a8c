/**
 * Protocol buffers, as much of them as etcd's messages need: a field is a number, a kind, and perhaps a list. What is
 * zero or empty is not sent, and has its default when it was not received.
 */
export type Field = { readonly at: number; readonly kind: Kind; readonly list?: true };
export type Kind = "number" | "bigint" | "boolean" | "bytes" | "text" | (() => Schema);
export type Schema = Readonly<Record<string, Field>>;

const VARINT = 0;
const FIXED64 = 1;
const DELIMITED = 2;
const FIXED32 = 5;

const LOW_HALF = 0xffffffffn;

export function encode(schema: Schema, message: object): Buffer {
  const writer = new Writer();
  writeMessage(writer, schema, message);
  return writer.bytes;
}

/** By what the message has: a schema has many fields that most messages leave out. */
function writeMessage(writer: Writer, schema: Schema, message: object): void {
  for (const name in message) {
    const field = schema[name];
    const value = (message as Readonly<Record<string, unknown>>)[name];
    if (value === undefined || field === undefined) continue;
    if (field.list) for (const one of value as readonly unknown[]) writeField(writer, field, one);
    else writeField(writer, field, value);
  }
}

function writeField(writer: Writer, { at, kind, list }: Field, value: unknown): void {
  if (kind === "number" || kind === "bigint" || kind === "boolean") {
    const number = kind === "boolean" ? Number(value) : (value as number | bigint);
    // oxlint-disable-next-line eqeqeq -- 0 and 0n
    if (number == 0 && !list) return;
    writer.varint(at * 8 + VARINT);
    writer.varint(number);
    return;
  }
  // An empty message is still a choice: of a `oneof`, or one more of a list.
  const plain = kind === "bytes" || kind === "text";
  if (plain && (value as string | Uint8Array).length === 0 && !list) return;
  writer.varint(at * 8 + DELIMITED);
  if (kind === "text") return writer.text(value as string);
  if (kind === "bytes") return writer.delimited(value as Uint8Array);
  const start = writer.open();
  writeMessage(writer, kind(), value as object);
  writer.close(start);
}

class Writer {
  #buffer = Buffer.allocUnsafe(512);
  #at = 0;

  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#at);
  }

  varint(value: number | bigint): void {
    this.#room(10);
    // Most are small.
    if (typeof value === "number" && value >= 0 && value < 2 ** 31) {
      let rest = value;
      for (; rest >= 0x80; rest >>>= 7) this.#buffer[this.#at++] = (rest & 0x7f) | 0x80;
      this.#buffer[this.#at++] = rest;
      return;
    }
    // In two halves: each step with a big integer makes a new one.
    const whole = BigInt.asUintN(64, BigInt(value));
    let low = Number(whole & LOW_HALF);
    let high = Number(whole >> 32n);
    while (high > 0 || low >= 0x80) {
      this.#buffer[this.#at++] = (low & 0x7f) | 0x80;
      low = ((low >>> 7) | (high << 25)) >>> 0;
      high >>>= 7;
    }
    this.#buffer[this.#at++] = low;
  }

  text(value: string): void {
    const length = Buffer.byteLength(value);
    this.varint(length);
    this.#room(length);
    this.#at += this.#buffer.write(value, this.#at);
  }

  delimited(value: Uint8Array): void {
    this.varint(value.length);
    this.#room(value.length);
    this.#buffer.set(value, this.#at);
    this.#at += value.length;
  }

  /** A message inside: its length comes before it and is known after it. One byte is kept free, which is enough for most. */
  open(): number {
    this.#room(1);
    this.#at += 1;
    return this.#at;
  }

  close(start: number): void {
    const length = this.#at - start;
    this.#at = start - 1;
    if (length >= 0x80) {
      const size = Math.ceil((32 - Math.clz32(length)) / 7);
      this.#room(size + length);
      this.#buffer.copyWithin(start - 1 + size, start, start + length);
    }
    this.varint(length);
    this.#at += length;
  }

  #room(more: number): void {
    if (this.#at + more <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(2 * this.#buffer.length, this.#at + more));
    // All of it: behind the place there may be a message whose length is still to be written.
    larger.set(this.#buffer);
    this.#buffer = larger;
  }
}

const DEFAULTS = { number: 0, bigint: 0n, boolean: false, bytes: Buffer.alloc(0), text: "" } as const;

/** The fields by their numbers, and a message without any; made once for each schema. */
type Prepared = { readonly names: ReadonlyMap<number, readonly [string, Field]>; readonly empty: () => Message };
type Message = Record<string, unknown>;
const prepared = new WeakMap<Schema, Prepared>();

function prepare(schema: Schema): Prepared {
  let known = prepared.get(schema);
  if (known === undefined) {
    const fields = Object.entries(schema);
    const names = new Map(fields.map(([name, field]) => [field.at, [name, field] as const]));
    const empty = (): Message => {
      const message: Message = {};
      for (const [name, { kind, list }] of fields) {
        message[name] = list ? [] : typeof kind === "string" ? DEFAULTS[kind] : undefined;
      }
      return message;
    };
    prepared.set(schema, (known = { names, empty }));
  }
  return known;
}

export function decode(schema: Schema, bytes: Buffer): object {
  const { names, empty } = prepare(schema);
  const message = empty();
  const reader = new Reader(bytes);
  while (!reader.done) {
    const tag = reader.number();
    const [name, field] = names.get(tag >>> 3) ?? [];
    if (name === undefined || field === undefined) reader.skip(tag & 7);
    else if ((tag & 7) !== typeOf(field.kind)) throw new Error(`${name} in the answer is of the wrong type`);
    else if (field.list) (message[name] as unknown[]).push(read(reader, field.kind));
    else message[name] = read(reader, field.kind);
  }
  return message;
}

function typeOf(kind: Kind): number {
  return kind === "number" || kind === "bigint" || kind === "boolean" ? VARINT : DELIMITED;
}

function read(reader: Reader, kind: Kind): unknown {
  switch (kind) {
    case "number":
      return reader.number();
    case "bigint":
      return reader.bigint();
    case "boolean":
      return reader.number() !== 0;
    case "bytes":
      return reader.delimited();
    case "text":
      return reader.delimited().toString();
    default:
      return decode(kind(), reader.delimited());
  }
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get done(): boolean {
    return this.#at >= this.#bytes.length;
  }

  /** Most are small: without big integers as long as that is exact. */
  number(): number {
    const start = this.#at;
    let value = 0;
    for (let shift = 0; shift < 49; shift += 7) {
      const byte = this.#byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    this.#at = start;
    return Number(this.bigint());
  }

  /** In two halves, as it is written. */
  bigint(): bigint {
    let [low, high] = [0, 0];
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#byte();
      const bits = byte & 0x7f;
      if (shift < 32) low |= bits << shift;
      if (shift > 25) high |= shift < 32 ? bits >>> (32 - shift) : bits << (shift - 32);
      if (byte < 0x80) return (BigInt(high) << 32n) | BigInt(low >>> 0);
    }
    throw new Error("a number in the answer has no end");
  }

  delimited(): Buffer {
    const length = this.number();
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new Error("the answer is cut short");
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }

  skip(type: number): void {
    if (type === VARINT) while (this.#byte() >= 0x80);
    else if (type === DELIMITED) this.delimited();
    else if (type === FIXED64) for (let n = 0; n < 8; n += 1) this.#byte();
    else if (type === FIXED32) for (let n = 0; n < 4; n += 1) this.#byte();
    else throw new Error(`the answer has a field of the unknown type ${type}`);
  }

  #byte(): number {
    const byte = this.#bytes[this.#at];
    if (byte === undefined) throw new Error("the answer is cut short");
    this.#at += 1;
    return byte;
  }
}
