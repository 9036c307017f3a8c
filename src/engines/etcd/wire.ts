/**
 * Protocol buffers, as much of them as etcd's messages need: a field is a number, a kind, and perhaps a list. What is
 * zero or empty is not sent, and stands with its default when it was not received.
 */
export type Field = { readonly at: number; readonly kind: Kind; readonly list?: true };
export type Kind = "number" | "bigint" | "boolean" | "bytes" | "text" | (() => Schema);
export type Schema = Readonly<Record<string, Field>>;

const VARINT = 0;
const FIXED64 = 1;
const DELIMITED = 2;
const FIXED32 = 5;

export function encode(schema: Schema, message: object): Buffer {
  const parts: Uint8Array[] = [];
  for (const [name, field] of Object.entries(schema)) {
    const value = (message as Readonly<Record<string, unknown>>)[name];
    if (value === undefined) continue;
    for (const one of field.list ? (value as readonly unknown[]) : [value]) write(parts, field, one);
  }
  return Buffer.concat(parts);
}

function write(parts: Uint8Array[], { at, kind, list }: Field, value: unknown): void {
  if (kind === "number" || kind === "bigint" || kind === "boolean") {
    const number = BigInt(value as number | bigint | boolean);
    if (number !== 0n || list) parts.push(varint(BigInt(at * 8 + VARINT)), varint(number));
    return;
  }
  const bytes =
    kind === "bytes"
      ? (value as Uint8Array)
      : kind === "text"
        ? Buffer.from(value as string)
        : encode(kind(), value as object);
  // An empty message is still a choice: of a `oneof`, or one more of a list.
  const plain = kind === "bytes" || kind === "text";
  if (plain && bytes.length === 0 && !list) return;
  parts.push(varint(BigInt(at * 8 + DELIMITED)), varint(BigInt(bytes.length)), bytes);
}

function varint(value: bigint): Uint8Array {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, value);
  for (; rest >= 0x80n; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
  bytes.push(Number(rest));
  return Uint8Array.from(bytes);
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
    const tag = Number(reader.varint());
    const [name, field] = names.get(tag >>> 3) ?? [];
    if (name === undefined || field === undefined) reader.skip(tag & 7);
    else if (field.list) (message[name] as unknown[]).push(read(reader, field.kind));
    else message[name] = read(reader, field.kind);
  }
  return message;
}

function read(reader: Reader, kind: Kind): unknown {
  switch (kind) {
    case "number":
      return Number(BigInt.asIntN(64, reader.varint()));
    case "bigint":
      return BigInt.asIntN(64, reader.varint());
    case "boolean":
      return reader.varint() !== 0n;
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

  varint(): bigint {
    // Most are small: as a number as long as that is exact.
    let low = 0;
    for (let shift = 0; shift < 49; shift += 7) {
      const byte = this.#byte();
      low += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return BigInt(low);
    }
    let value = BigInt(low);
    for (let shift = 49n; shift < 70n; shift += 7n) {
      const byte = this.#byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new Error("a number in the answer has no end");
  }

  delimited(): Buffer {
    const end = Number(this.varint()) + this.#at;
    if (end > this.#bytes.length) throw new Error("the answer is cut short");
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }

  skip(type: number): void {
    if (type === VARINT) this.varint();
    else if (type === DELIMITED) this.delimited();
    else if (type === FIXED64) this.#at += 8;
    else if (type === FIXED32) this.#at += 4;
    else throw new Error(`the answer has a field of the unknown type ${type}`);
  }

  #byte(): number {
    const byte = this.#bytes[this.#at];
    if (byte === undefined) throw new Error("the answer is cut short");
    this.#at += 1;
    return byte;
  }
}
