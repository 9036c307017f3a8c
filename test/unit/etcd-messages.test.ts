import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { METHODS, STREAMS } from "../../src/engines/etcd/drivers/grpc-messages.js";
import { decode, encode, type Field, type Kind, type Schema } from "../../src/engines/etcd/drivers/protobuf.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** What goes over the wire, compared with etcd's own description of its messages, and with protocol buffers written plainly. */

type Described = { readonly at: number; readonly type: string; readonly list: boolean };

/** Messages and calls as etcd describes them: the copy that another client library ships. */
function describedByEtcd() {
  const folder = new URL("../../node_modules/etcd3/proto/", import.meta.url);
  const text = ["rpc.proto", "kv.proto", "auth.proto"]
    .map((file) => readFileSync(new URL(file, folder), "utf8"))
    .join();
  const plain = text.replaceAll(/\/\/.*$/gm, "");
  const messages = new Map<string, Map<string, Described>>();
  for (const [, name = "", body = ""] of plain.matchAll(/^message (\w+) ?\{([^]*?)^\}/gm)) {
    const own = body.replaceAll(/enum \w+ \{[^}]*\}/g, "");
    const fields = [...own.matchAll(/(repeated )?([\w.]+) (\w+) = (\d+);/g)];
    messages.set(
      name,
      new Map(
        fields.map(([, list, type = "", field = "", at]) => [
          field,
          { at: Number(at), type: type.replace(/^.*\./, ""), list: list !== undefined },
        ]),
      ),
    );
  }
  const calls = new Map<string, readonly [string, string]>();
  for (const [, service = "", body = ""] of plain.matchAll(/^service (\w+) ?\{([^]*?)^\}/gm)) {
    for (const [, name = "", from = "", to = ""] of body.matchAll(
      /rpc (\w+)\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)/g,
    ))
      calls.set(`/etcdserverpb.${service}/${name}`, [from, to]);
  }
  return { messages, calls };
}

const NUMBERS = new Set(["int64", "uint64", "int32", "uint32"]);

/** What a field of this type may be read as. An enumeration is a number. */
function kindsOf(type: string, isMessage: boolean): readonly string[] {
  if (isMessage) return ["message"];
  if (NUMBERS.has(type)) return ["number", "bigint"];
  if (type === "bool") return ["boolean"];
  if (type === "bytes") return ["bytes", "text"];
  return type === "string" ? ["text"] : ["number"];
}

test("every field has the number and the type that etcd gives it, in every message of every call", () => {
  const { messages, calls } = describedByEtcd();
  const seen = new Set<string>();
  const compare = (schema: Schema, message: string): void => {
    if (seen.has(message)) return;
    seen.add(message);
    const described = messages.get(message);
    for (const [name, { at, kind, list }] of Object.entries(schema)) {
      const field = described?.get(name);
      const what = `${message}.${name}`;
      expect({ at, list: list === true }, what).toEqual({ at: field?.at, list: field?.list });
      const type = field?.type ?? "";
      expect(kindsOf(type, messages.has(type)), what).toContain(typeof kind === "string" ? kind : "message");
      if (typeof kind !== "string") compare(kind(), type);
    }
  };
  for (const { path, request, response } of [...Object.values(METHODS), ...Object.values(STREAMS)]) {
    const [from, to] = calls.get(path) ?? [];
    expect(from, path).toBeDefined();
    compare(request, from ?? "");
    compare(response, to ?? "");
  }
  expect(seen.size).toBeGreaterThan(20);
});

/** Protocol buffers as they are described: a tag, a length, bytes; whole numbers in groups of seven bits. */
function plainly(schema: Schema, message: Readonly<Record<string, unknown>>): number[] {
  return Object.entries(message).flatMap(([name, value]) => {
    const field = schema[name];
    if (field === undefined || value === undefined) return [];
    const all = field.list ? (value as unknown[]) : [value];
    return all.flatMap((one) => plainField(field, one));
  });
}

function varint(value: bigint): number[] {
  const rest = BigInt.asUintN(64, value);
  return rest < 0x80n ? [Number(rest)] : [Number(rest & 0x7fn) | 0x80, ...varint(rest >> 7n)];
}

function plainField({ at, kind, list }: Field, value: unknown): number[] {
  if (kind === "number" || kind === "bigint" || kind === "boolean") {
    const number = BigInt(value as number | bigint | boolean);
    return number === 0n && !list ? [] : [...varint(BigInt(at * 8)), ...varint(number)];
  }
  const isMessage = typeof kind !== "string";
  const bytes = isMessage ? plainly(kind(), value as Record<string, unknown>) : [...Buffer.from(value as string)];
  if (bytes.length === 0 && !list && !isMessage) return [];
  return [...varint(BigInt(at * 8 + 2)), ...varint(BigInt(bytes.length)), ...bytes];
}

/** Around where a length takes one byte more, and where the writer needs more room. */
const LONG = [127, 128, 129, 300, 500, 511, 512, 513, 1_023, 1_025, 5_000, 16_383, 16_384];

function randomValue(chance: SeededChance, kind: Kind, deep: number): unknown {
  const pick = <T>(from: readonly T[]): T => from[chance.between(0, from.length - 1)] as T;
  const bits = chance.between(0, 62);
  const big =
    (BigInt(chance.between(0, 2 ** 31 - 1)) * 2n ** 31n + BigInt(chance.between(0, 2 ** 31 - 1))) >> BigInt(bits);
  const text = pick(["x", "ü", "🔒", "\0"]).repeat(chance.fraction() < 0.04 ? pick(LONG) : chance.between(0, 4));
  if (kind === "boolean") return chance.fraction() < 0.5;
  if (kind === "bigint") return chance.fraction() < 0.2 ? -big : big;
  if (kind === "number") return Number(BigInt.asUintN(53, big)) * (chance.fraction() < 0.2 ? -1 : 1);
  if (kind === "text") return text;
  return kind === "bytes" ? Buffer.from(text) : randomMessage(chance, kind(), deep + 1);
}

/** With every field, so that it is read as it was written. */
function randomMessage(chance: SeededChance, schema: Schema, deep = 0): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(schema).map(([name, { kind, list }]) => {
      const isMessage = typeof kind !== "string";
      // Few of those that hold others, and none where there are many already.
      if (list) {
        const count = deep > 2 ? 0 : chance.between(0, isMessage ? 2 : 5);
        return [name, Array.from({ length: count }, () => randomValue(chance, kind, deep))];
      }
      const leftOut = isMessage && (deep > 2 || chance.fraction() < 0.5);
      return [name, leftOut ? undefined : randomValue(chance, kind, deep)];
    }),
  );
}

const plainZero = (value: unknown): unknown => (Object.is(value, -0) ? 0 : value);

test("random messages of every call are written as they are described, and read as they were written", () => {
  const chance = new SeededChance(Number(process.env["HOLDFAST_FIRST_SEED"] ?? 1));
  const schemas = [...Object.values(METHODS), ...Object.values(STREAMS)].flatMap(({ request, response }) => [
    request,
    response,
  ]);
  const odd: Schema = {
    numbers: { at: 15, kind: "number", list: true },
    texts: { at: 16, kind: "text", list: true },
    yes: { at: 2_047, kind: "boolean", list: true },
    last: { at: 2 ** 29 - 1, kind: () => odd },
  };
  for (let n = 0; n < 20; n += 1) {
    for (const schema of [...schemas, odd]) {
      const message = randomMessage(chance, schema);
      const bytes = encode(schema, message);
      expect(bytes.equals(Buffer.from(plainly(schema, message)))).toBe(true);
      expect(decode(schema, bytes)).toEqual(normal(message));
      // A reader that knows none of it steps over all of it.
      expect(decode({}, bytes)).toEqual({});
    }
  }
});

function normal(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(normal);
  if (value === null || typeof value !== "object" || Buffer.isBuffer(value)) return plainZero(value);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, normal(one)]));
}

test("fields of fixed size that are not known are stepped over, wherever they are cut short it is said", () => {
  const schema: Schema = { text: { at: 3, kind: "text" }, number: { at: 4, kind: "number" } };
  const known = [...plainField({ at: 3, kind: "text" }, "after"), ...plainField({ at: 4, kind: "number" }, 7)];
  const unknown: readonly (readonly number[])[] = [
    [9, 1, 2, 3, 4, 5, 6, 7, 8],
    [13, 1, 2, 3, 4],
    [8, 0xff, 0xff, 1],
    [10, 2, 0xff, 0xff],
  ];
  for (const bytes of unknown) {
    const all = Buffer.from([...bytes, ...known]);
    expect(decode(schema, all), bytes.join()).toEqual({ text: "after", number: 7 });
    for (let cut = 1; cut < bytes.length; cut += 1)
      expect(() => decode(schema, all.subarray(0, cut)), `${bytes.join()} up to ${cut}`).toThrow("cut short");
  }
  for (const type of [3, 4, 6, 7]) expect(() => decode(schema, Buffer.from([8 + type, 0]))).toThrow("unknown type");
  expect(() => decode(schema, Buffer.from([24, 1])), "a number where a text belongs").toThrow("wrong type");
  expect(() => decode(schema, Buffer.from([34, 0])), "a text where a number belongs").toThrow("wrong type");
  expect(() => decode(schema, Buffer.from([32, ...Array.from({ length: 10 }, () => 0xff), 1]))).toThrow("no end");
  expect(decode(schema, Buffer.from([32, ...Array.from({ length: 9 }, () => 0xff), 1]))).toEqual({
    text: "",
    number: -1,
  });
});
