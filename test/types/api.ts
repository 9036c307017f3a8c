/** Compiled, never run: what the types must allow and refuse. */
import type { Engine } from "../../src/engine.js";
import { connect, type Hold, LockLostError, type WriteHold } from "../../src/index.js";

/** A URL that is written out takes the options of its engine, and no others. */
export async function urls(fromSettings: string): Promise<void> {
  await connect("redis://h", { leaseMs: 1000, ack: 1, layout: "plain" });
  await connect("redlock://a,b,c", { memberTimeoutMs: 50, prefix: "p:" });
  await connect("postgres://h/d", { schema: "locks", durable: false });
  await connect("zookeeper+tls://h", { sessionTimeoutMs: 4000, tls: {} });
  await connect(["redis://a", "etcd://b", "memory:"], { memberTimeoutMs: 50 });
  await connect(fromSettings, { ack: 1, schema: "locks" });
  await connect();
  // @ts-expect-error MySQL has no such option
  await connect("mysql://h/d", { durable: false });
  // @ts-expect-error only a quorum has members
  await connect("redis://h", { memberTimeoutMs: 50 });
  // @ts-expect-error etcd has no schema
  await connect("etcd://h", { schema: "locks" });
  // @ts-expect-error memory takes what every store takes, and nothing else
  await connect("memory:", { prefix: "p:" });
}

export async function api(engine: Engine): Promise<void> {
  await using locks = await connect(engine, { require: { order: "fifo", exclusion: ["consensus", "single-server"] } });
  // @ts-expect-error no such guarantee
  await connect(engine, { require: { order: "lifo" } });

  const hold: Hold = await locks.mutex("m").acquire({ waitMs: 1, signal: AbortSignal.timeout(5) });
  const maybe: Hold | null = await locks.mutex("m").tryAcquire();
  // @ts-expect-error it may be null
  maybe.throwIfLost();
  // @ts-expect-error only a semaphore has permits
  await locks.mutex("m").acquire({ permits: 2 });
  await locks.semaphore("s", 3).acquire({ permits: 2 });
  // @ts-expect-error a semaphore has a capacity
  locks.semaphore("s");

  const writing: WriteHold = await locks.readWrite("rw").write.acquire();
  await writing.downgrade();
  const reading = await locks.readWrite("rw").read.acquire();
  // @ts-expect-error only a writer can become a reader
  await reading.downgrade();
  // @ts-expect-error a token is for reading
  hold.token = 5;

  const sum: number = await locks.mutex("m").using((held) => held.token + 1);
  const text: string = await locks.mutex("m").using({ leaseMs: 1000 }, async () => "text");
  locks.on("lost", ({ name, reason }) => console.log(name, reason satisfies LockLostError["reason"], sum, text));
  {
    using listening = locks.on("warning", ({ message }) => console.log(message, listening));
  }
  // @ts-expect-error no such event
  locks.on("stolen", () => {});

  const both = await locks.all([locks.mutex("a"), locks.semaphore("s", 2), locks.readWrite("rw").write]).tryAcquire();
  // @ts-expect-error it may be null
  both.throwIfLost();
  // @ts-expect-error a read-write lock is two locks: say which
  locks.all([locks.readWrite("rw")]);
  const result = await locks.job("j").run(() => "text");
  // @ts-expect-error it may not have run
  console.log(result.value);
  if (result.ran) console.log(result.value.length);
  const leader: { value: string; token: number } | null = await locks.election("e").leader();
  await locks.schedule("s", { everyMs: 1000 }, ({ at, token, signal }) => console.log(at, token, signal, leader));
}
