import { status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { SystemChance } from "../../src/core/clock.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { addressOf } from "../../src/engine-kit/hosts.js";
import { Bulk } from "../../src/engines/etcd/bulk.js";
import type { EtcdDriver, WatchStream } from "../../src/engines/etcd/driver.js";
import { METHODS } from "../../src/engines/etcd/drivers/grpc-messages.js";
import { decode, encode, type Schema } from "../../src/engines/etcd/drivers/protobuf.js";
import { EtcdError, STATUS } from "../../src/engines/etcd/errors.js";
import { Watches } from "../../src/engines/etcd/events.js";
import { etcdClient } from "../../src/engines/etcd/index.js";
import { Keys } from "../../src/engines/etcd/keys.js";
import { Lease, Leases } from "../../src/engines/etcd/leases.js";
import type { TxnRequest, TxnResponse } from "../../src/engines/etcd/messages.js";
import { parseEtcdUrl } from "../../src/engines/etcd/url.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

test("messages come back as they were sent, at the edges too", () => {
  const inner: Schema = { text: { at: 1, kind: "text" } };
  const schema: Schema = {
    number: { at: 1, kind: "number" },
    big: { at: 2, kind: "bigint" },
    yes: { at: 3, kind: "boolean" },
    bytes: { at: 4, kind: "bytes" },
    list: { at: 64, kind: () => inner, list: true },
  };
  for (const number of [0, 1, 127, 128, 2 ** 31 - 1, 2 ** 31, 2 ** 49, Number.MAX_SAFE_INTEGER, -1]) {
    for (const big of [0n, 1n, 2n ** 62n + 3n, -5n]) {
      const list = [{ text: "" }, { text: "ü🔒".repeat(200) }];
      const message = { number, big, yes: true, bytes: Buffer.from([0, 255]), list };
      expect(decode(schema, encode(schema, message))).toEqual(message);
    }
  }
  const outer: Schema = { inner: { at: 1, kind: () => schema, list: true } };
  for (const edge of [0, 0x80, 512, 1024, 0x4000]) {
    for (let length = Math.max(0, edge - 24); length < edge + 4; length += 1) {
      const message = { number: 1, big: 2n, yes: true, bytes: Buffer.from("x"), list: [{ text: "y".repeat(length) }] };
      const twice = { inner: [message, message] };
      expect(decode(outer, encode(outer, twice)), `a message of about ${length} inside another`).toEqual(twice);
    }
  }
  expect(decode({}, encode(schema, { number: 5, bytes: Buffer.from("x") })), "unknown fields are skipped").toEqual({});
  expect(() => decode(schema, encode(schema, { bytes: Buffer.from("xyz") }).subarray(0, 3))).toThrow("cut short");
  // As protoc encodes it: field 1 of RangeRequest is the key.
  expect(encode(METHODS.range.request, { key: "a", limit: 300 }).toString("hex")).toBe("0a016118ac02");
});

test("every whole number is written with the fewest bytes, as plain arithmetic writes it, and read again", () => {
  for (let power = 0n; power < 64n; power += 1n) {
    for (const value of [2n ** power - 1n, 2n ** power, 2n ** power + 1n, -(2n ** power)]) {
      const big = BigInt.asIntN(64, value);
      const bytes: number[] = [];
      let rest = BigInt.asUintN(64, big);
      for (; rest >= 0x80n; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
      const written = big === 0n ? [] : [8, ...bytes, Number(rest)];
      const asBig: Schema = { value: { at: 1, kind: "bigint" } };
      expect([...encode(asBig, { value: big })], String(big)).toEqual(written);
      expect(decode(asBig, Buffer.from(written))).toEqual({ value: big });
      if (!Number.isSafeInteger(Number(big))) continue;
      const asNumber: Schema = { value: { at: 1, kind: "number" } };
      expect([...encode(asNumber, { value: Number(big) })], String(big)).toEqual(written);
      expect(decode(asNumber, Buffer.from(written))).toEqual({ value: Number(big) });
    }
  }
});

test("no name's claims stand inside another's, and every key says its name", () => {
  const keys = new Keys("p/");
  for (const name of ["a", "a/b", "%", "%2F", "a%25", "%/tombstone", "ü 🔒", "/", "//"]) {
    expect(keys.parse(keys.claim(name, "id"))).toEqual({ name, id: "id" });
    const [from, to] = keys.claims("a");
    const inside = keys.claim(name, "id") >= from && keys.claim(name, "id") < to;
    expect(inside).toBe(name === "a");
  }
  expect(keys.parse(keys.tombstone("a", "id"))).toBeNull();
  expect(keys.parse(keys.capacity("a"))).toBeNull();
});

test("all keys of a prefix come before its end, in the order of etcd, and no others do", () => {
  const order = (one: string, two: string): number => Buffer.compare(Buffer.from(one), Buffer.from(two));
  expect(new Keys("holdfast/").end).toBe("holdfast0");
  for (const prefix of ["p", "p/", "é", "\ud7ff", "🔒", "z~"]) {
    const { end } = new Keys(prefix);
    for (const rest of ["", "a", "\u{10ffff}\u{10ffff}"]) expect(order(prefix + rest, end)).toBe(-1);
    expect(Buffer.from(end).toString(), "it can be written in UTF-8").toBe(end);
  }
  expect([new Keys("").end, new Keys("\u{10ffff}").end], "no end").toEqual(["\0", "\0"]);
});

test("URLs have hosts, user, password and TLS, and what is wrong is told without them", () => {
  expect(parseEtcdUrl("etcd://a,b:1,[::1]:2")).toMatchObject({ tls: undefined });
  expect(parseEtcdUrl("etcd://a,b:1,[::1]:2").hosts.map(addressOf)).toEqual(["a:2379", "b:1", "[::1]:2"]);
  expect(parseEtcdUrl("etcds://u%3A:p%40:q@h/")).toMatchObject({ username: "u:", password: "p@:q", tls: {} });
  const wrongPorts = ["etcd://secret@h:0", "etcd://secret@h:65536", "etcd://secret@a,b:99999", "etcd://secret@[::1]:0"];
  expect(parseEtcdUrl("etcd://h:65535,h:1,h:00080")).toMatchObject({
    hosts: [65_535, 1, 80].map((port) => ({ host: "h", port })),
  });
  for (const wrong of wrongPorts) expect(() => parseEtcdUrl(wrong)).toThrow(/port/);
  const unreadable = ["etcd://", "etcd://secret@", "etcd://secret@h/path", "etcd://secret%@h", "etcd:h"];
  for (const wrong of [...unreadable, ...wrongPorts]) {
    expect(() => parseEtcdUrl(wrong)).toThrow(InvalidOptionError);
    expect(() => parseEtcdUrl(wrong)).not.toThrow(/secret/);
  }
});

test("certificates and keys that cannot be read are told by the option's name, and not shown", async () => {
  for (const part of ["ca", "cert", "key", "pfx"]) {
    const error = await etcdClient("etcds://h", { tls: { [part]: "secret" } }).catch((thrown: unknown) => thrown);
    expect(error, part).toBeInstanceOf(InvalidOptionError);
    expect(error).toMatchObject({ option: `tls.${part}` });
    expect(String(error)).not.toMatch(/secret/);
  }
  const mixed = etcdClient("etcds://h", { tls: { minVersion: "TLSv9" as "TLSv1.3" } });
  await expect(mixed).rejects.toThrow(InvalidOptionError);
});

test("pitfall 51: a keep-alive counts with the quorum's word in the same term, from the earlier of the two", () => {
  const lease = new Lease(1n, 10_000, 0);
  expect(lease.provenUntil).toBe(10_000);
  lease.beat = { sentAt: 5000, term: 7n };
  expect(lease.provenUntil, "a keep-alive alone proves nothing").toBe(10_000);
  lease.prove({ sentAt: 6000, term: 8n });
  expect(lease.provenUntil, "nor with another term's answer").toBe(10_000);
  lease.prove({ sentAt: 4000, term: 7n });
  expect(lease.provenUntil).toBe(14_000);
  lease.prove({ sentAt: 9000, term: 7n });
  expect(lease.provenUntil).toBe(15_000);
  lease.beat = { sentAt: 1000, term: 9n };
  lease.prove({ sentAt: 1000, term: 9n });
  expect(lease.provenUntil, "and never moves back").toBe(15_000);
});

test("a watch that is asked for after the stream ended, and before it was open, gets a stream", async () => {
  const opened: { readonly done: (stream: WatchStream) => void; readonly ended: () => void }[] = [];
  const watch: EtcdDriver["watch"] = (_, ended) => new Promise((done) => opened.push({ done, ended }));
  const watches = new Watches({ watch } as EtcdDriver, new FakeClock(), new SystemChance(), () => {});
  const one = { key: "k", heard: () => {}, broken: () => {} };
  watches.add(one);
  opened[0]?.ended();
  watches.add(one);
  opened[0]?.done({ send: () => {}, close: () => {} });
  await new Promise(setImmediate);
  expect(opened).toHaveLength(2);
  watches.close();
});

test.each([
  { ID: 0n, TTL: 5 },
  { ID: 7n, TTL: 0 },
])("a lease that is none is not believed: what is put under it lasts for ever, or not at all (%o)", async (lease) => {
  const leases = new Leases({ call: async () => lease } as unknown as EtcdDriver, new FakeClock());
  await expect(leases.grant(5)).rejects.toThrow(/a lease that is none/);
});

test("a tombstone whose lease the server forgot is written once more under a new one; any other error is told", async () => {
  let granted = 0n;
  const client = { call: async () => ({ ID: (granted += 1n), TTL: 120 }) } as unknown as EtcdDriver;
  const leases = new Leases(client, new FakeClock());
  const under: bigint[] = [];
  const failing = (...causes: Error[]) =>
    leases.bury(async (lease) => {
      under.push(lease);
      const cause = causes.shift();
      if (cause !== undefined) throw cause;
      return "written";
    });
  const forgotten = () => new EtcdError(STATUS.NOT_FOUND, "etcdserver: requested lease not found");
  expect(await failing()).toBe("written");
  await expect(failing(new EtcdError(STATUS.UNAVAILABLE, "gone away"))).rejects.toThrow("gone away");
  expect(await failing(forgotten())).toBe("written");
  await expect(failing(forgotten(), forgotten())).rejects.toThrow("lease not found");
  expect(under, "not again, under a new one, and that again; no third time").toEqual([1n, 1n, 1n, 2n, 2n, 3n]);
});

type Sent = { readonly request: TxnRequest; answer(response: Partial<TxnResponse>): void; refuse(cause: Error): void };

function bulk() {
  const sent: Sent[] = [];
  const one = new Bulk(
    (request) =>
      new Promise<{ response: TxnResponse }>((resolve, reject) => {
        const header = { cluster_id: 1n, revision: 7, raft_term: 1n };
        const answer = (more: Partial<TxnResponse>): void =>
          resolve({ response: { header, succeeded: true, responses: [], ...more } });
        sent.push({ request, answer, refuse: reject });
      }),
    NEEDS_RIGHTS,
  );
  return { sent, one };
}
const NEEDS_RIGHTS = { request_delete_range: { key: "never there" } };
const putOf = (key: string): TxnRequest => ({ success: [{ request_put: { key } }] });
const nestedIn = ({ request }: Sent): string[] =>
  (request.success ?? [])
    .filter((part) => part !== NEEDS_RIGHTS)
    .map(({ request_txn: nested, request_put: put }) => {
      const [first] = nested?.success ?? [];
      return put?.key ?? first?.request_put?.key ?? first?.request_delete_range?.key ?? "";
    });

test("what is written in one turn is one call; each claim of a name is in another one, behind what leaves", async () => {
  const { sent, one } = bulk();
  const asked = [
    one.write(putOf("a1"), "a"),
    one.write(putOf("b1"), "b"),
    one.write(putOf("a2"), "a"),
    one.write({ success: [{ request_delete_range: { key: "a0" } }] }),
  ];
  await settle();
  expect(sent.map(nestedIn)).toEqual([["a0", "a1", "b1"], ["a2"]]);
  expect(sent[0]?.request.success?.at(-1), "the server asks for no rights to what is nested").toBe(NEEDS_RIGHTS);
  const nested = (succeeded: boolean) => ({ response_txn: { succeeded, responses: [] } });
  sent[0]?.answer({ responses: [nested(true), nested(false), nested(true)] });
  sent[1]?.answer({ succeeded: false });
  const answers = await Promise.all(asked);
  expect(answers.map(({ response }) => response.succeeded)).toEqual([false, true, false, true]);
  expect(answers.every(({ response }) => response.header.revision === 7)).toBe(true);
});

test("a call has 32 parts at most, and one alone is sent as it is", async () => {
  const { sent, one } = bulk();
  for (let n = 0; n < 65; n += 1) void one.write(putOf(`k${n}`), `name ${n}`);
  await settle();
  expect(sent.map((call) => nestedIn(call).length)).toEqual([32, 32, 1]);
  expect(sent[2]?.request, "not nested").toEqual(putOf("k64"));
});

test("random writes of one turn: each is sent once, who leaves first, no two claims of a name in one call, those in order", async () => {
  for (let seed = 1; seed <= 30; seed += 1) {
    const chance = new SeededChance(seed);
    const { sent, one } = bulk();
    const asked = Array.from({ length: chance.between(2, 150) }, (_, n) => ({
      key: `k${n}`,
      name: chance.fraction() < 0.5 ? null : `name ${chance.between(1, 30)}`,
    }));
    for (const { key, name } of asked) void one.write(putOf(key), name ?? undefined);
    await settle();
    const calls = sent.map(nestedIn);
    const nameOf = new Map(asked.map(({ key, name }) => [key, name]));
    expect(calls.flat().toSorted(), `seed ${seed}`).toEqual(asked.map(({ key }) => key).toSorted());
    const leaves = calls.flat().filter((key) => nameOf.get(key) === null);
    expect(leaves, `seed ${seed}`).toEqual(asked.flatMap(({ key, name }) => (name === null ? [key] : [])));
    for (const call of calls) {
      const names = call.flatMap((key) => nameOf.get(key) ?? []);
      expect(new Set(names).size, `seed ${seed}`).toBe(names.length);
      expect(call.length).toBeLessThanOrEqual(32);
      const claims = call.findIndex((key) => nameOf.get(key) !== null);
      if (claims >= 0) expect(call.slice(claims).every((key) => nameOf.get(key) !== null)).toBe(true);
    }
    for (let name = 1; name <= 30; name += 1) {
      const claims = calls.flat().filter((key) => nameOf.get(key) === `name ${name}`);
      expect(claims, `seed ${seed}`).toEqual(asked.flatMap((a) => (a.name === `name ${name}` ? [a.key] : [])));
    }
    // As few calls as there can be: they are full, but for what must not stand together.
    const most = Math.max(
      ...[...nameOf.values()].map((name) => asked.filter((a) => name !== null && a.name === name).length),
    );
    expect(calls.length).toBeLessThanOrEqual(Math.ceil(asked.length / 32) + most);
  }
});

test("the codes are those of gRPC", () => {
  for (const [name, code] of Object.entries(STATUS)) expect(code, name).toBe(status[name as keyof typeof STATUS]);
});

test("what is refused together is asked for alone, and what was lost together is unknown to all", async () => {
  const { sent, one } = bulk();
  const refused = ["a", "b"].map((name) => one.write(putOf(name), name));
  await settle();
  sent[0]?.refuse(new EtcdError(STATUS.NOT_FOUND, "etcdserver: requested lease not found"));
  await settle();
  expect(sent.slice(1).map(nestedIn)).toEqual([["a"], ["b"]]);
  sent[1]?.refuse(new EtcdError(STATUS.NOT_FOUND, "etcdserver: requested lease not found"));
  sent[2]?.answer({});
  expect((await Promise.allSettled(refused)).map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
  const lost = ["a", "b"].map((name) => one.write(putOf(name), name));
  await settle();
  sent[3]?.refuse(new EtcdError(STATUS.UNAVAILABLE, "the wire is cut"));
  expect((await Promise.allSettled(lost)).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(sent, "nothing is sent twice that may have been done").toHaveLength(4);
});
