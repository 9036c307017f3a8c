import { expect, test } from "vitest";
import { GrpcEtcd, type GrpcSettings } from "../../src/engines/etcd/drivers/grpc.js";
import { noting } from "../../src/engines/etcd/drivers/grpc-sockets.js";
import { type EtcdError, STATUS } from "../../src/engines/etcd/errors.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { type Call, type Channel, type Credentials, networkOf, Socket, STEP, soon } from "./etcd-network.js";

/** When a connection is left, and when it is only slow: by the fake clock, with what the network does in the test's hand. */

const LIMIT_MS = 1000;

function driverOf(settings: Partial<GrpcSettings> = {}) {
  const clock = new FakeClock();
  const { grpc, channels, verified } = networkOf();
  const client = new GrpcEtcd(grpc, { hosts: ["a"], clock, callTimeoutMs: LIMIT_MS, ...settings });
  const ask = (key = "k"): Asked => new Asked(client.call("range", { key }), clock);
  const now = (): Channel => channels.at(-1) as Channel;
  return { clock, channels, verified, client, ask, now };
}

/** What became of a call, and when. */
class Asked {
  outcome = "";
  error: EtcdError | null = null;

  constructor(promise: Promise<unknown>, clock: FakeClock) {
    promise.then(
      () => (this.outcome = `answered at ${clock.now()}`),
      (error: EtcdError) => {
        this.error = error;
        this.outcome = `failed at ${clock.now()}`;
      },
    );
  }
}

const callOf = (channel: Channel, n: number): Call => channel.calls[n] as Call;

/** Asks so many at once, and waits until they are on their way. */
async function asking(ask: () => Asked, count: number): Promise<Asked[]> {
  const all = Array.from({ length: count }, ask);
  await settle();
  return all;
}

test("a call that is answered takes its time limit with it, and the connection stays", async () => {
  const { clock, channels, ask, now } = driverOf();
  const [one] = await asking(ask, 1);
  await clock.advance(LIMIT_MS - 1);
  callOf(now(), 0).answer();
  await settle();
  expect([one?.outcome, clock.pending]).toEqual(["answered at 999", 0]);
  await asking(ask, 1);
  expect([channels.length, now().closed, callOf(now(), 0).cancelled]).toEqual([1, 0, 0]);
});

test("a silent connection is left when a call's time is over: the call is ended, and the next one goes to a new connection", async () => {
  const { clock, channels, ask, now } = driverOf();
  const [one] = await asking(ask, 1);
  await clock.advance(LIMIT_MS - 1);
  expect([one?.outcome, now().closed]).toEqual(["", 0]);
  await clock.advance(1);
  expect(one?.outcome).toBe("failed at 1000");
  expect([one?.error?.status, one?.error?.message.slice(-7)]).toEqual([STATUS.DEADLINE_EXCEEDED, "1000 ms"]);
  expect([now().closed, callOf(now(), 0).cancelled, clock.pending]).toEqual([1, 1, 0]);
  const [two] = await asking(ask, 1);
  expect(channels).toHaveLength(2);
  callOf(now(), 0).answer();
  await settle();
  expect(two?.outcome).toBe("answered at 1000");
});

test("a slow connection is not left: a call waits while what was asked before it is answered, for four limits at most", async () => {
  const { clock, channels, ask, now } = driverOf();
  const all = await asking(ask, 8);
  for (let n = 0; n < 7; n += 1) {
    await clock.advance(600);
    if (n < 6) callOf(now(), n).answer();
    await settle();
  }
  const answered = [600, 1200, 1800, 2400, 3000, 3600].map((at) => `answered at ${at}`);
  // At four limits those that are left have waited long enough, and the connection with them.
  expect(all.map(({ outcome }) => outcome)).toEqual([...answered, "failed at 4000", "failed at 4000"]);
  expect([channels.length, now().closed]).toEqual([1, 1]);
});

test("a slow connection that falls silent is left one limit after its last answer", async () => {
  const { clock, ask, now } = driverOf();
  const all = await asking(ask, 3);
  await clock.advance(900);
  callOf(now(), 0).answer();
  await clock.advance(999);
  expect([all[1]?.outcome, now().closed]).toEqual(["", 0]);
  await clock.advance(1);
  expect(all.map(({ outcome }) => outcome)).toEqual(["answered at 900", "failed at 1900", "failed at 1900"]);
  expect(now().closed).toBe(1);
});

test("a call behind which another one was answered is lost: it is not waited for", async () => {
  const { clock, ask, now } = driverOf();
  const all = await asking(ask, 4);
  await clock.advance(500);
  callOf(now(), 3).answer();
  await clock.advance(100);
  // Later, and of an older one: the newest that was answered is still the last.
  callOf(now(), 0).answer();
  await clock.advance(400);
  expect(all.map(({ outcome }) => outcome)).toEqual([
    "answered at 600",
    "failed at 1000",
    "failed at 1000",
    "answered at 500",
  ]);
  expect(now().closed).toBe(1);
});

test("what a watch tells shows that a connection is slow and not silent, and what etcd refuses does too", async () => {
  const { clock, client, ask, now } = driverOf();
  const stream = await client.watch(
    () => {},
    () => {},
  );
  const [first, second] = await asking(ask, 2);
  await clock.advance(800);
  now().streams[0]?.say({});
  await clock.advance(800);
  callOf(now(), 0).refuse(STATUS.NOT_FOUND, "etcdserver: requested lease not found");
  await clock.advance(800);
  expect([first?.outcome, second?.outcome, now().closed]).toEqual(["failed at 1600", "", 0]);
  callOf(now(), 1).answer();
  await settle();
  expect(second?.outcome).toBe("answered at 2400");
  stream.close();
});

/** The rule in plain words, asked at every millisecond at which somebody has to be looked at. */
test("random answers: each call ends when the rule says so, and no connection is left before it", async () => {
  for (let seed = 1; seed <= 300; seed += 1) {
    const chance = new SeededChance(seed);
    const { clock, ask, now } = driverOf();
    const count = chance.between(2, 6);
    const all = await asking(ask, count);
    const model = all.map(() => ({ looksAt: LIMIT_MS, outcome: "" }));
    let [heardAt, newest, left] = [0, 0, false];
    const passes = async (ms: number): Promise<void> => {
      const until = clock.now() + ms;
      for (;;) {
        const due = model.filter(({ outcome, looksAt }) => outcome === "" && looksAt <= until);
        if (due.length === 0) break;
        const at = Math.min(...due.map(({ looksAt }) => looksAt));
        for (const [n, one] of model.entries()) {
          if (one.outcome !== "" || one.looksAt !== at) continue;
          const later = Math.min(heardAt + LIMIT_MS, 4 * LIMIT_MS);
          if (n + 1 > newest && later > at) one.looksAt = later;
          else [one.outcome, left] = [`failed at ${at}`, true];
        }
      }
      await clock.advance(ms);
    };
    const channel = now();
    for (let step = 0; step < 8; step += 1) {
      await passes(chance.between(1, 700));
      const n = chance.between(0, count - 1);
      const one = model[n];
      if (one?.outcome !== "") continue;
      one.outcome = `answered at ${clock.now()}`;
      [heardAt, newest] = [clock.now(), Math.max(newest, n + 1)];
      callOf(channel, n).answer();
      await settle();
      const said = `seed ${seed}, step ${step}`;
      expect(
        all.map(({ outcome }) => outcome),
        said,
      ).toEqual(model.map(({ outcome }) => outcome));
      expect(channel.closed, said).toBe(Number(left));
    }
    await passes(5 * LIMIT_MS);
    expect(
      all.map(({ outcome }) => outcome),
      `seed ${seed}`,
    ).toEqual(model.map(({ outcome }) => outcome));
    expect([channel.closed, clock.pending], `seed ${seed}`).toEqual([Number(left), 0]);
  }
});

test("what is under way on a connection that was left may still be answered, for one limit; then its sockets end", async () => {
  const { clock, ask, now } = driverOf();
  const first = await asking(ask, 1);
  const left = now();
  const socket = left.connects();
  callOf(left, 0).answer();
  await clock.advance(500);
  const [two] = await asking(ask, 1);
  await clock.advance(900);
  const [three] = await asking(ask, 1);
  await clock.advance(100);
  expect([first[0]?.outcome, two?.outcome, left.closed]).toEqual(["answered at 0", "failed at 1500", 1]);
  await clock.advance(500);
  callOf(left, 2).answer();
  await settle();
  expect([three?.outcome, socket.destroyed]).toEqual(["answered at 2000", 0]);
  await clock.advance(499);
  expect(socket.destroyed).toBe(0);
  await clock.advance(1);
  expect([socket.destroyed, clock.pending]).toEqual([1, 0]);
});

test("a connection on which nothing was ever heard ends at once when it is left, sockets that come later too", async () => {
  const { clock, ask, now } = driverOf();
  await asking(ask, 1);
  const left = now();
  const socket = left.connects();
  await clock.advance(LIMIT_MS);
  expect([socket.destroyed, left.connects().destroyed, clock.pending]).toEqual([1, 1, 0]);
});

test("a call that fails on a connection which was left before leaves the new one alone", async () => {
  const { clock, channels, ask, now } = driverOf({ hosts: ["a", "b", "c"], callTimeoutMs: 3 * LIMIT_MS });
  await asking(ask, 1);
  await clock.advance(500);
  await asking(ask, 1);
  await clock.advance(500);
  const [on] = await asking(ask, 1);
  expect(channels.map(({ address }) => address)).toEqual(["a", "b"]);
  await clock.advance(500);
  expect([now().closed, on?.outcome]).toEqual([0, ""]);
  callOf(now(), 0).answer();
  await settle();
  expect(on?.outcome).toBe("answered at 1500");
});

test("of several members each is given a third of a call's time, and they are asked in turn", async () => {
  for (const hosts of [
    ["a", "b"],
    ["a", "b", "c"],
  ]) {
    const { clock, channels, ask } = driverOf({ hosts, callTimeoutMs: 3 * LIMIT_MS });
    for (let n = 0; n < 4; n += 1) {
      const [one] = await asking(ask, 1);
      await clock.advance(LIMIT_MS);
      expect(one?.outcome).toBe(`failed at ${(n + 1) * LIMIT_MS}`);
    }
    expect(channels.map(({ address }) => address)).toEqual([...hosts, ...hosts].slice(0, 4));
  }
});

const NOT_SERVING = new Set<number>([STATUS.CANCELLED, STATUS.DEADLINE_EXCEEDED, STATUS.INTERNAL, STATUS.UNAVAILABLE]);

test.each(Object.entries(STATUS))(
  "%s: what is not etcd's own word leaves the connection; its own only where there are others, and it cannot serve",
  async (_, status) => {
    for (const hosts of [["a"], ["a", "b"]]) {
      for (const text of ["etcdserver: no leader", "14 UNAVAILABLE: read ECONNRESET"]) {
        const { ask, now } = driverOf({ hosts });
        const [one] = await asking(ask, 1);
        callOf(now(), 0).refuse(status, text);
        await settle();
        expect(one?.error).toMatchObject({ status, message: text });
        const stays = text.startsWith("etcdserver:") && (hosts.length === 1 || !NOT_SERVING.has(status));
        expect(now().closed, `${text}, ${hosts.join()}`).toBe(stays ? 0 : 1);
      }
    }
  },
);

test("what the library says of an answer that breaks the protocol is no word of an old server", async () => {
  for (const [details, status] of [
    ["No message received", STATUS.INTERNAL],
    ["Too many responses received", STATUS.INTERNAL],
    ["unknown service", STATUS.UNIMPLEMENTED],
  ] as const) {
    const { ask, now } = driverOf();
    const [one] = await asking(ask, 1);
    callOf(now(), 0).refuse(STATUS.UNIMPLEMENTED, details);
    await settle();
    expect(one?.error).toMatchObject({ status, message: details });
  }
  const { ask, now } = driverOf();
  const [one] = await asking(ask, 1);
  callOf(now(), 0).settle({ message: "13 INTERNAL: something", details: "" });
  await settle();
  expect(one?.error).toMatchObject({ status: STATUS.INTERNAL, message: "13 INTERNAL: something" });
});

test("a heartbeat is one question on a stream: its answer ends it, and that end is no failure", async () => {
  const { clock, channels, client, now } = driverOf();
  const lease = client.keepAlive(7n);
  await settle();
  const [stream] = now().streams;
  expect([stream?.path, stream?.written]).toEqual(["/etcdserverpb.Lease/LeaseKeepAlive", [{ ID: 7n }]]);
  stream?.say({ ID: 7n, TTL: 5 });
  expect(await soon(lease)).toEqual({ ID: 7n, TTL: 5 });
  await settle();
  stream?.end();
  expect([stream?.cancelled, now().closed, clock.pending]).toEqual([1, 0, 0]);
  const unanswered = client.keepAlive(7n);
  await settle();
  now().streams[1]?.end();
  expect(await soon(unanswered)).toMatchObject({
    status: STATUS.UNAVAILABLE,
    message: "the stream ended without an answer",
  });
  const failed = client.keepAlive(7n);
  await settle();
  now().streams[0]?.fail(STATUS.UNAVAILABLE, "nobody is there");
  expect(await soon(failed)).toMatchObject({ message: "nobody is there" });
  expect(channels.map(({ closed }) => closed)).toEqual([1, 1]);
  const late = new Asked(client.keepAlive(7n), clock);
  await clock.advance(LIMIT_MS);
  expect([late.outcome, now().streams[0]?.cancelled]).toEqual(["failed at 1000", 1]);
});

/** Without its time limit: a mutation run takes that for a busy machine. */
const whyOf = (cause: Error | undefined): string => cause?.message.replace(/ within .*/, "") ?? "";

/** A watch, with what it heard and how it ended. */
async function watching(client: GrpcEtcd) {
  const heard: object[] = [];
  const ended: (Error | undefined)[] = [];
  const stream = await client.watch(
    (response) => heard.push(response),
    (cause) => ended.push(cause),
  );
  return { heard, ended, stream };
}

test("a watch ends once and says why: when its stream fails or ends, or its connection is left; not when it was closed", async () => {
  const causes: readonly [string, (one: Call) => void][] = [
    ["it broke", (one) => one.fail(STATUS.UNAVAILABLE, "it broke")],
    ["the stream ended", (one) => one.end()],
  ];
  for (const [why, happens] of causes) {
    const { client, now } = driverOf();
    const { heard, ended, stream } = await watching(client);
    const one = now().streams[0] as Call;
    stream.send({ cancel_request: { watch_id: 1 } });
    one.say({ watch_id: 1 });
    happens(one);
    happens(one);
    await settle();
    one.say({ watch_id: 2 });
    stream.send({ cancel_request: { watch_id: 2 } });
    expect(ended.map((cause) => cause?.message)).toEqual([why]);
    expect([heard, one.written]).toEqual([[{ watch_id: 1 }], [{ cancel_request: { watch_id: 1 } }]]);
    expect(one.cancelled).toBe(1);
  }
  const { clock, client, ask, now } = driverOf();
  const [open, closed] = [await watching(client), await watching(client)];
  closed.stream.close();
  await asking(ask, 1);
  await clock.advance(LIMIT_MS);
  expect([open, closed].map(({ ended }) => ended.map(whyOf))).toEqual([["no answer"], []]);
  expect(now().streams.map(({ cancelled }) => cancelled)).toEqual([1, 1]);
});

test("who only listens asks when nothing was heard for a call's time; without an answer the connection is left", async () => {
  const { clock, client, now } = driverOf();
  const { ended } = await watching(client);
  await clock.advance(700);
  now().streams[0]?.say({});
  await clock.advance(999);
  expect(now().calls).toEqual([]);
  await clock.advance(1);
  expect(now().calls.map(({ path }) => path)).toEqual(["/etcdserverpb.Cluster/MemberList"]);
  callOf(now(), 0).answer();
  await clock.advance(999);
  expect(now().calls).toHaveLength(1);
  await clock.advance(1);
  expect(now().calls).toHaveLength(2);
  // Whatever is answered, as long as it is etcd.
  callOf(now(), 1).refuse(STATUS.INVALID_ARGUMENT, "etcdserver: user name is empty");
  await clock.advance(1000);
  expect(now().calls).toHaveLength(3);
  expect([ended, now().closed]).toEqual([[], 0]);
  await clock.advance(LIMIT_MS);
  expect(ended.map(whyOf)).toEqual(["no answer"]);
  expect(now().closed).toBe(1);
  await clock.advance(LIMIT_MS);
  expect(clock.pending).toBe(0);
});

test("several listen by one question, and nobody asks when nobody listens any more", async () => {
  const { clock, client, ask, now } = driverOf();
  const [one, two] = [await watching(client), await watching(client)];
  expect(clock.pending).toBe(1);
  one.stream.close();
  await clock.advance(1000);
  expect(now().calls).toHaveLength(1);
  callOf(now(), 0).answer();
  await settle();
  expect(clock.pending).toBe(1);
  two.stream.close();
  await clock.advance(5000);
  expect([now().calls.length, clock.pending]).toEqual([1, 0]);
  await watching(client);
  await clock.advance(1);
  expect(now().calls, "nothing was heard for long, and one listens again").toHaveLength(2);
  callOf(now(), 1).answer();
  await settle();
  // A connection that is left takes its question with it.
  await asking(ask, 1);
  callOf(now(), 2).refuse(STATUS.UNAVAILABLE, "nobody is there");
  await settle();
  expect(clock.pending, "only the end of its sockets").toBe(1);
  await clock.advance(5000);
  expect([now().calls.length, clock.pending]).toEqual([3, 0]);
});

test("a client that is closed ends what it has, and makes nothing new", async () => {
  const { clock, client, ask, now } = driverOf();
  const [first] = await asking(ask, 1);
  const one = now();
  const sockets = [one.connects()];
  callOf(one, 0).answer();
  await asking(ask, 1);
  callOf(one, 1).refuse(STATUS.UNAVAILABLE, "nobody is there");
  const { ended } = await watching(client);
  sockets.push(now().connects());
  await asking(ask, 1);
  callOf(now(), 0).answer();
  await settle();
  expect(sockets.map(({ destroyed }) => destroyed)).toEqual([0, 0]);
  for (let n = 0; n < 2; n += 1) client.close();
  expect(sockets.map(({ destroyed }) => destroyed)).toEqual([1, 1]);
  expect(ended.map((cause) => cause?.message)).toEqual(["the client was closed"]);
  expect([now().closed, clock.pending, first?.outcome]).toEqual([1, 0, "answered at 0"]);
  expect(await soon(client.call("range", { key: "k" }))).toMatchObject({ status: STATUS.CANCELLED });
});

test("a token is asked for once, by all calls together, and again when etcd says that it is spent: once for each call", async () => {
  const { client, now } = driverOf({ credentials: async () => ({ username: "u", password: "p" }) });
  const both = [client.call("range", { key: "a" }), client.call("range", { key: "b" })];
  await settle();
  expect(now().calls.map(({ path, message }) => [path, message])).toEqual([
    ["/etcdserverpb.Auth/Authenticate", { name: "u", password: "p" }],
  ]);
  expect(callOf(now(), 0).metadata.values).toEqual({ hasleader: "true" });
  callOf(now(), 0).answer({ token: "t1" });
  await settle();
  expect(
    now()
      .calls.slice(1)
      .map(({ metadata }) => metadata.values),
  ).toEqual([
    { hasleader: "true", token: "t1" },
    { hasleader: "true", token: "t1" },
  ]);
  callOf(now(), 1).answer();
  callOf(now(), 2).refuse(STATUS.UNAUTHENTICATED, "etcdserver: invalid auth token");
  await settle();
  callOf(now(), 3).answer({ token: "t2" });
  await settle();
  expect(callOf(now(), 4).metadata.values).toMatchObject({ token: "t2" });
  callOf(now(), 4).refuse(STATUS.INVALID_ARGUMENT, "etcdserver: revision of auth store is old");
  expect(await Promise.all(both.map(soon))).toEqual([{}, expect.objectContaining({ status: STATUS.INVALID_ARGUMENT })]);
  expect(now().calls, "no third time").toHaveLength(5);
  const other = client.call("range", { key: "c" });
  await settle();
  callOf(now(), 5).refuse(STATUS.NOT_FOUND, "etcdserver: key not found");
  expect(await soon(other)).toMatchObject({ status: STATUS.NOT_FOUND });
  expect(now().calls).toHaveLength(6);
  // The watch that is told so asks for a new one the next time.
  const { ended } = await watching(client);
  now().streams[0]?.fail(STATUS.UNAUTHENTICATED, "etcdserver: invalid auth token");
  expect(ended).toHaveLength(1);
  void client.keepAlive(1n).catch(() => {});
  await settle();
  expect(callOf(now(), 6).path).toBe("/etcdserverpb.Auth/Authenticate");
  callOf(now(), 6).answer({ token: "t3" });
  await settle();
  expect(now().streams[1]?.metadata.values).toMatchObject({ token: "t3" });
});

test("without a user a call that etcd refuses because of its token is not sent again", async () => {
  const { ask, now } = driverOf();
  const [one] = await asking(ask, 1);
  callOf(now(), 0).refuse(STATUS.UNAUTHENTICATED, "etcdserver: invalid auth token");
  await settle();
  expect([one?.outcome, now().calls.length]).toEqual(["failed at 0", 1]);
});

test("a user without a token is refused, and asked for again the next time", async () => {
  const { client, now } = driverOf({ credentials: async () => ({ username: "u", password: "p" }) });
  for (let n = 0; n < 2; n += 1) {
    const one = client.call("range", { key: "k" });
    await settle();
    callOf(now(), n).answer({ token: "" });
    expect(await soon(one)).toMatchObject({ message: "the answer has no token" });
  }
});

test("a channel is of its own, sends nothing twice, takes long answers, and checks the name that was given", async () => {
  const options = {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_retries": 0,
    "grpc.max_receive_message_length": 67_108_864,
  };
  for (const [tls, more] of [
    [undefined, {}],
    [{}, {}],
    [{ servername: "etcd.example" }, { "grpc.ssl_target_name_override": "etcd.example" }],
  ] as const) {
    const { ask, now } = driverOf({ tls });
    await asking(ask, 1);
    expect(now().options).toEqual({ ...options, ...more });
  }
});

test("who answers a secure connection is checked as was said, and as the library does where nothing was said", async () => {
  const checkServerIdentity = (): undefined => undefined;
  for (const tls of [{}, { rejectUnauthorized: false }, { rejectUnauthorized: true }, { checkServerIdentity }]) {
    const { ask, verified } = driverOf({ tls });
    await asking(ask, 1);
    expect(verified).toStrictEqual([tls]);
  }
});

test("sockets are noted while they are open, and a library that shows none is used all the same", () => {
  const noted = noting({ [STEP]: () => ({ connect: () => "connected" }) });
  const connect = (socket: Socket): unknown => (noted.credentials as Credentials)[STEP]?.().connect(socket);
  const [open, closed, late] = [new Socket(), new Socket(), new Socket()];
  expect([connect(open), connect(closed)]).toEqual(["connected", "connected"]);
  closed.close();
  noted.destroy();
  connect(late);
  expect([open, closed, late].map(({ destroyed }) => destroyed)).toEqual([1, 0, 1]);
  expect(() => noting({}).destroy()).not.toThrow();
});
