import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { ClaimRef } from "../../src/core/engine.js";
import { EngineRefusedError, NotSentError } from "../../src/core/errors.js";
import { CallTimeouts } from "../../src/engine-kit/call-timeouts.js";
import { AckedGrants, ReplicaAcks } from "../../src/engines/redis/ack.js";
import { Batch } from "../../src/engines/redis/batch.js";
import { Claims } from "../../src/engines/redis/claim.js";
import { parseClaimAnswer } from "../../src/engines/redis/codec.js";
import type { PipelineConnection, RedisDriver } from "../../src/engines/redis/driver.js";
import { ioredisDriver } from "../../src/engines/redis/drivers/ioredis.js";
import { LockKeys } from "../../src/engines/redis/keys.js";

import { SCRIPTS } from "../../src/engines/redis/scripts.generated.js";
import { type CallScript, type ScriptAnswers, Scripts } from "../../src/engines/redis/scripts.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { claimOf } from "../faults/rig.js";

/** What becomes of requests on their way to the scripts, and of answers on their way back. */

const MOST = 8;

type Call = { readonly keys: readonly string[]; readonly requests: readonly string[]; readonly tail: string };

/** A script that answers each request with its own text; what begins with "wrong" fails by itself, or is left out. */
function scriptOf(calls: Call[]) {
  const call: CallScript = (_name, keys, args, answered) => {
    const requests = args.slice(0, keys.length);
    calls.push({ keys, requests, tail: args.slice(keys.length).join("|") });
    const texts = requests.map((one) => (one.startsWith("wrong") ? `error ERR ${one}` : `did ${one}`));
    queueMicrotask(() => answered({ texts, missingAcks: null }));
  };
  return call;
}

test("requests of one turn share calls: each has its own answer, a name keeps its order, no call carries too many", async () => {
  const request = fc.record({
    key: fc.constantFrom("a", "b", "c"),
    wrong: fc.boolean(),
  });
  const turns = fc.array(fc.array(request, { maxLength: 230, size: "max" }), { minLength: 1, maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(turns, fc.boolean(), async (all, cluster) => {
      const calls: Call[] = [];
      const batch = new Batch({
        script: "claim",
        call: scriptOf(calls),
        tail: ["tail"],
        parse: (text) => text,
        cluster,
      });
      let sent = 0;
      for (const turn of all) {
        const before = calls.length;
        const asked = turn.map(({ key, wrong }) => {
          const text = `${wrong ? "wrong" : "right"} ${(sent += 1)}`;
          return { key, text, wrong };
        });
        const answers = await Promise.allSettled(asked.map(({ key, text }) => batch.add(key, text)));
        const told = answers.map((one) => (one.status === "fulfilled" ? one.value : (one.reason as Error).message));
        expect(told).toEqual(asked.map(({ text, wrong }) => (wrong ? `ERR ${text}` : `did ${text}`)));
        const mine = calls.slice(before);
        const byText = new Map(asked.map((one) => [one.text, one]));
        for (const { keys, requests, tail } of mine) {
          expect(requests.length).toBeLessThanOrEqual(cluster ? 1 : MOST);
          expect(requests.map((one) => byText.get(one)?.key)).toEqual(keys);
          expect(tail).toBe("tail");
        }
        const arrived = (key: string) => asked.filter((one) => one.key === key).map(({ text }) => text);
        const served = (key: string) =>
          mine.flatMap(({ keys, requests }) => requests.filter((_, n) => keys[n] === key));
        for (const key of ["a", "b", "c"]) expect(served(key)).toEqual(arrived(key));
        if (!cluster) expect(mine).toHaveLength(Math.ceil(asked.length / MOST));
      }
    }),
    { numRuns: 25 },
  );
});

test("what waits for a name is sent before what is asked of it next; what waits for others stays", async () => {
  const calls: Call[] = [];
  const batch = new Batch({ script: "claim", call: scriptOf(calls), tail: [], parse: (text) => text, cluster: false });
  const answers = [batch.add("a", "1"), batch.add("b", "2")];
  batch.flush("c");
  expect(calls).toEqual([]);
  batch.flush("b");
  expect(calls.map(({ requests }) => requests)).toEqual([["1", "2"]]);
  batch.flush("b");
  answers.push(batch.add("a", "3"));
  // What was sent is no reason to send what came since.
  batch.flush("b");
  expect(calls).toHaveLength(1);
  expect(await Promise.all(answers)).toEqual(["did 1", "did 2", "did 3"]);
  expect(calls.map(({ requests }) => requests)).toEqual([["1", "2"], ["3"]]);
});

test("an answer that the script left out, and a call that failed, reject the requests that they are about", async () => {
  const [short, broken] = [["did 1"], "gone away"];
  const options = { script: "claim", tail: [], parse: (text: string) => text, cluster: false } as const;
  const some = new Batch({
    ...options,
    call: (_name, _keys, _args, answered) => answered({ texts: short, missingAcks: null }),
  });
  const answers = await Promise.allSettled([some.add("a", "1"), some.add("a", "2")]);
  expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  const none = new Batch({ ...options, call: (_name, _keys, _args, _answered, failed) => failed(new Error(broken)) });
  await expect(none.add("a", "1")).rejects.toThrow(broken);
});

test("a call that throws rejects its own requests, and what other engines asked in the same turn is sent", async () => {
  const calls: Call[] = [];
  const options = { script: "claim", tail: [], parse: (text: string) => text, cluster: false } as const;
  const thrower = new Batch({
    ...options,
    call: () => {
      throw new Error("not a function");
    },
  });
  const other = new Batch({ ...options, call: scriptOf(calls) });
  const answers = await Promise.allSettled([thrower.add("a", "1"), other.add("a", "2")]);
  expect(answers).toMatchObject([{ reason: { message: "not a function" } }, { value: "did 2" }]);
});

test("a grant is read with its floor and the live tokens, whichever of them it has", () => {
  expect(parseClaimAnswer("granted 900 1790000000000001 1790000000000001")).toEqual({
    kind: "granted",
    leftMs: 900,
    token: 1790000000000001,
    floor: 1790000000000001,
  });
  expect(parseClaimAnswer("granted 0 12 3")).toEqual({ kind: "granted", leftMs: 0, token: 12, floor: 3 });
  const live = { kind: "granted", leftMs: 10000, token: 12, floor: 3, live: [3, 7, 12] };
  expect(parseClaimAnswer("granted 10000 12 3 3,7,12")).toEqual(live);
});

test("pitfall 37: what was released counts as acknowledged no longer", async () => {
  const released: string[] = [];
  const grants = new AckedGrants(async ({ id }: ClaimRef) => {
    released.push(id);
    return "released";
  });
  const ref = { name: "name", id: "id" };
  const granted = { kind: "granted", leftMs: 1000, token: 1, floor: 1 } as const;
  const missing = { acked: 0, needed: 1 };
  await grants.confirmClaim(ref, granted);
  expect(await grants.confirmRenewal(ref, granted, missing)).toMatchObject({ kind: "unknown" });
  expect(released).toEqual([]);
  grants.forget("another");
  expect(await grants.confirmRenewal(ref, granted, missing)).toMatchObject({ kind: "unknown" });
  grants.forget(ref.id);
  expect(await grants.confirmRenewal(ref, granted, missing)).toEqual({ kind: "gone" });
  expect(released).toEqual(["id"]);
});

test("a claim in a Cluster says that it is in one, by itself; any other does not, and goes with others", async () => {
  const calls: Call[] = [];
  const claims = (cluster: boolean) =>
    new Claims({
      call: (_name, keys, args, answered) => {
        calls.push({ keys, requests: args.slice(0, keys.length), tail: args.slice(keys.length).join("|") });
        answered({ texts: keys.map(() => "gone"), missingAcks: null });
      },
      keys: new LockKeys("", 1),
      idleMs: 1,
      channel: "",
      cluster,
      expectPush() {},
      grants: null,
    });
  for (const cluster of [true, false]) {
    const one = claims(cluster);
    await Promise.all(["a", "b"].map((name) => one.claim(claimOf(name))));
  }
  expect(calls.map(({ keys, tail }) => `${keys.join("+")} ${tail}`)).toEqual([
    ...["lock:a 1", "lock:b 1", "lock:a+lock:b "],
  ]);
});

test("what is not sent for want of a connection says so, and is told of", async () => {
  const told: string[] = [];
  const driver = { topology: "single", offline: true, call: () => told.push("sent") } as unknown as RedisDriver;
  const scripts = new Scripts(driver, new CallTimeouts(new FakeClock(), 5_000), () => void told.push("offline"));
  await expect(scripts.text("claim", ["key"], [])).rejects.toBeInstanceOf(NotSentError);
  await expect(
    new Promise((resolve, reject) => scripts.answers("claim", ["key"], [], resolve, reject)),
  ).rejects.toBeInstanceOf(NotSentError);
  expect(told).toEqual(["offline", "offline"]);
});

/** Scripts on a wire: what is sent, with the key that it goes to, and what each command answers. */
function scriptsOn(answer: (command: readonly string[]) => unknown, topology: RedisDriver["topology"] = "single") {
  const clock = new FakeClock();
  const sent: (readonly string[])[] = [];
  const offline = { now: false, told: 0 };
  const driver = {
    topology,
    get offline() {
      return offline.now;
    },
    call: async (key: string, command: readonly string[]): Promise<unknown> => {
      sent.push([key, ...command]);
      const said = await answer(command);
      if (said instanceof Error) throw said;
      return said;
    },
  } as unknown as RedisDriver;
  const scripts = new Scripts(driver, new CallTimeouts(clock, 5_000), () => (offline.told += 1));
  return { clock, sent, offline, scripts };
}

test("a script that the server does not know is sent as it is, and nothing else is sent twice", async () => {
  let failure = "NOSCRIPT No matching script.";
  const { sent, scripts } = scriptsOn(([command]) => (command === "evalsha" ? new Error(failure) : "did\nall"));
  const commands = (): (string | undefined)[] => sent.splice(0).map(([, command]) => command);
  const run = () => scripts.text("claim", ["key", "other"], ["a", "b", "c"]);
  expect(await run()).toBe("did\nall");
  const [first = [], second = []] = sent;
  expect([first[0], ...first.slice(3)]).toEqual(["key", "2", "key", "other", "a", "b", "c"]);
  expect([second[0], ...second.slice(3)]).toEqual(["key", "2", "key", "other", "a", "b", "c"]);
  expect(second[2]).toBe(SCRIPTS.claim.pieces.join("\n"));
  expect(commands()).toEqual(["evalsha", "eval"]);
  const answers = (): Promise<ScriptAnswers> =>
    new Promise((resolve, reject) => scripts.answers("claim", ["key"], [], resolve, reject));
  expect(await answers()).toEqual({ texts: ["did", "all"], missingAcks: null });
  await expect(scripts.texts("claim", ["key"], [])).rejects.toThrow(/where a list/);
  sent.length = 0;
  for (failure of ["Connection is closed.", "ERR the script failed: NOSCRIPT"])
    await expect(run()).rejects.toThrow(failure);
  expect(commands()).toEqual(["evalsha", "evalsha"]);
});

test("a script that is sent as it is may fail, and has a time limit, as any other", async () => {
  let fails = true;
  const { clock, scripts } = scriptsOn(([command]) => {
    if (command === "evalsha") return new Error("NOSCRIPT No matching script.");
    return fails ? new Error("MOVED 1 host:1") : new Promise(() => {});
  });
  await expect(scripts.text("claim", ["key"], [])).rejects.toBeInstanceOf(EngineRefusedError);
  fails = false;
  const silent = expect(scripts.text("claim", ["key"], [])).rejects.toThrow(/no answer within/);
  await clock.advance(5_000);
  await silent;
});

test("a node's MOVED is for good unless the client is of a Cluster, and an answer must be what the verb expects", async () => {
  const moved = () => new Error("MOVED 1 host:1");
  await expect(scriptsOn(moved).scripts.text("claim", ["key"], [])).rejects.toBeInstanceOf(EngineRefusedError);
  const inCluster = scriptsOn(moved, "cluster").scripts.text("claim", ["key"], []);
  await expect(inCluster).rejects.not.toBeInstanceOf(EngineRefusedError);
  const { scripts } = scriptsOn(() => 7);
  await expect(scripts.text("claim", ["key"], [])).rejects.toThrow(/where a text/);
  await expect(scripts.texts("claim", ["key"], [])).rejects.toThrow(/where a list/);
});

test("without a connection nothing is sent, which is told; once refused, only the version is asked for", async () => {
  const { sent, offline, scripts } = scriptsOn(() => "done");
  offline.now = true;
  await expect(scripts.text("claim", ["key"], [])).rejects.toBeInstanceOf(NotSentError);
  expect([sent, offline.told]).toEqual([[], 1]);
  offline.now = false;
  scripts.refuse(new EngineRefusedError("redis", "advice", new Error("too new")));
  const errors = await Promise.all(
    [1, 2].map(() => scripts.text("claim", ["key"], []).catch((cause: unknown) => cause)),
  );
  for (const error of errors) {
    expect(error).toBeInstanceOf(EngineRefusedError);
    expect((error as Error).message).toContain("too new");
  }
  // Each has an error of its own: whoever catches one may add to it.
  expect(errors[0]).not.toBe(errors[1]);
  expect(sent).toEqual([]);
  expect(await scripts.text("layoutVersion", ["key"], [])).toBe("done");
  scripts.refuse(null);
  expect(await scripts.text("claim", ["key"], [])).toBe("done");
  expect([sent.length, offline.told]).toEqual([2, 1]);
});

type Waiting = { readonly commands: readonly (readonly string[])[]; end(replies: readonly unknown[] | Error): void };

/** What is sent with a WAIT, each until the test says what comes back. */
function acksOf(topology: "single" | "cluster") {
  const waiting: Waiting[] = [];
  const connection: PipelineConnection = {
    pipeline: (_key, commands) =>
      new Promise((resolve, reject) => {
        const end: Waiting["end"] = (replies) => (replies instanceof Error ? reject(replies) : resolve(replies));
        waiting.push({ commands, end });
      }),
    close: () => {},
  };
  const driver = { topology } as RedisDriver;
  const acks = new ReplicaAcks(driver, connection, new CallTimeouts(new FakeClock(), 5_000), () => 1, 700);
  const ask = (key: string, text: string): Promise<unknown> =>
    new Promise<ScriptAnswers>((resolve, reject) => acks.answers("claim", [key], [text], resolve, reject))
      .then(({ texts, missingAcks }) => [texts, missingAcks])
      .catch((error: Error) => error.message);
  /** What is under way: keys and last arguments of the scripts, and the WAIT behind them. */
  const shown = (): string[] => waiting.map(({ commands }) => commands.map(last).join(" + "));
  const last = (command: readonly string[]): string =>
    command[0] === "wait" ? command.join(" ") : `${command[0]} ${command.slice(-2).join(" ")}`;
  const next = (): Waiting => waiting.shift() as Waiting;
  return { ask, shown, next };
}

test("with ack all of one turn share a WAIT, and what comes meanwhile shares the next one", async () => {
  const { ask, shown, next } = acksOf("single");
  const first = [ask("a", "1"), ask("b", "2")];
  await settle();
  const later = [ask("a", "3"), ask("c", "4"), ask("c", "5")];
  await settle();
  expect(shown()).toEqual(["evalsha a 1 + evalsha b 2 + wait 1 700"]);
  next().end(["did 1", new Error("ERR two"), 1]);
  expect(await Promise.all(first)).toEqual([[["did 1"], null], expect.stringContaining("ERR two")]);
  expect(shown()).toEqual(["evalsha a 3 + evalsha c 4 + evalsha c 5 + wait 1 700"]);
  // A script that the server does not know is sent as it is; what has too few replicas says so.
  next().end(["did 3", new Error("NOSCRIPT No matching script."), "did 5", 0]);
  await settle();
  expect(shown().map((one) => one.replace(/eval .* c/s, "eval c"))).toEqual(["eval c 4 + wait 1 700"]);
  next().end(["did 4", 1]);
  const missing = { acked: 0, needed: 1 };
  expect(await Promise.all(later)).toEqual([
    [["did 3"], missing],
    [["did 4"], null],
    [["did 5"], missing],
  ]);
  const lost = [ask("a", "6"), ask("b", "7")];
  await settle();
  next().end(new Error("connection lost"));
  expect(await Promise.all(lost)).toEqual([1, 2].map(() => expect.stringContaining("connection lost")));
  const unwaited = ask("a", "8");
  await settle();
  next().end(["did 8", new Error("ERR no WAIT here")]);
  expect(await unwaited).toContain("no WAIT here");
});

test("with ack in a Cluster each name has a WAIT of its own", async () => {
  const { ask, shown, next } = acksOf("cluster");
  const all = ["a 1", "b 2", "a 3"].map((one) => ask(one.slice(0, 1), one.slice(2)));
  await settle();
  expect(shown()).toEqual(["evalsha a 1 + evalsha a 3 + wait 1 700", "evalsha b 2 + wait 1 700"]);
  next().end(["did 1", "did 3", 1]);
  next().end(["did 2", 1]);
  expect(await Promise.all(all)).toEqual(["did 1", "did 2", "did 3"].map((text) => [[text], null]));
});

test("what one turn sends to the nodes of a Cluster is held back until its end, and then goes out", async () => {
  const done: string[] = [];
  const node = (name: string) => ({
    stream: { cork: () => done.push(`cork ${name}`), uncork: () => done.push(`uncork ${name}`) },
  });
  // The last one is not connected yet.
  const nodes = [node("a"), node("b"), { stream: undefined }];
  const client = {
    options: {},
    status: "ready",
    nodes: () => nodes,
    pipeline: () => ({}),
    duplicate: () => ({}),
    call: async (command: string) => void done.push(command),
  };
  const driver = ioredisDriver(client);
  const turn = (...commands: string[]) => Promise.all(commands.map((command) => driver.call("key", [command])));
  await turn("one", "two");
  await new Promise((resolve) => setImmediate(resolve));
  await turn("three");
  await new Promise((resolve) => setImmediate(resolve));
  const [corked, uncorked] = [
    ["cork a", "cork b"],
    ["uncork a", "uncork b"],
  ];
  expect(done).toEqual([...corked, "one", "two", ...uncorked, ...corked, "three", ...uncorked]);
});
