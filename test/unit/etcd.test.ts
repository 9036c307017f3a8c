import { expect, test } from "vitest";
import { SystemChance } from "../../src/core/clock.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { addressOf } from "../../src/engine-kit/hosts.js";
import type { EtcdDriver, WatchStream } from "../../src/engines/etcd/driver.js";
import { METHODS } from "../../src/engines/etcd/drivers/grpc-messages.js";
import { decode, encode, type Schema } from "../../src/engines/etcd/drivers/protobuf.js";
import { Watches } from "../../src/engines/etcd/events.js";
import { etcdClient } from "../../src/engines/etcd/index.js";
import { Keys } from "../../src/engines/etcd/keys.js";
import { Lease, Leases } from "../../src/engines/etcd/leases.js";
import { parseEtcdUrl } from "../../src/engines/etcd/url.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

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
