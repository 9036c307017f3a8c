import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import type { ClaimRequest, Engine, EngineEvent } from "../../src/core/engine.js";
import { ClosedError, EngineRefusedError, NotSentError, UnsupportedError } from "../../src/core/errors.js";
import { openRedis, type RedisUrlOptions, redisEngine } from "../../src/engines/redis/index.js";
import type { RedisOptions } from "../../src/engines/redis/options.js";
import { SCRIPTS } from "../../src/engines/redis/scripts.generated.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { claimOf, states } from "../faults/rig.js";

/** Engines on a wire that answers what the test says: what is sent, in which order, and what is told to whom. */

const LIMIT_MS = 5_000;
const NAMES = new Map<string, string>(Object.entries(SCRIPTS).map(([name, { sha }]) => [sha, name]));

type Sent = { readonly script: string; readonly keys: readonly string[]; readonly args: readonly string[] };
type Answer = (sent: Sent) => unknown;

/** A client of ioredis, and those that were made of it. */
class Client extends EventEmitter {
  status = "ready";
  options: object;
  readonly done: string[] = [];
  readonly pipelines: string[][] = [];
  constructor(
    readonly wire: Wire,
    options: object = {},
  ) {
    super();
    this.options = options;
  }
  call = (...command: string[]): Promise<unknown> => this.wire.answer(command);
  pipeline = (commands: string[][]) => ({
    exec: async () => {
      this.pipelines.push(commands.map(([name = ""]) => name));
      const wait = commands.at(-1) ?? [];
      this.wire.waits.push(wait.slice(1));
      if (this.wire.silent) await new Promise(() => {});
      const answers = await Promise.all(commands.slice(0, -1).map((one) => this.wire.answer(one)));
      return [...answers.map((one) => [null, one]), [null, this.wire.acked]];
    },
  });
  duplicate = (): Client => {
    const one = new Client(this.wire, this.options);
    this.wire.made.push(one);
    return one;
  };
  connect = async (): Promise<void> => {};
  disconnect = (): void => void this.done.push("disconnect");
  ping = async (): Promise<void> => void this.done.push("ping");
  subscribe = async (channel: string): Promise<void> => {
    this.done.push(`+${channel}`);
    if (this.wire.refuses) throw new Error("NOPERM no channels");
  };
  unsubscribe = async (channel: string): Promise<void> => void this.done.push(`-${channel}`);
}

class Wire {
  readonly made: Client[] = [];
  readonly sent: Sent[] = [];
  readonly waits: string[][] = [];
  acked = 0;
  refuses = false;
  replicas = 0;
  info: () => string | Error = () => `role:master\r\nconnected_slaves:${this.replicas}\r\n`;
  scripts: Record<string, Answer> = {};
  silent = false;
  version: Answer = ({ args }) => args[0];
  exists: unknown = 0;
  readonly reads: (readonly string[])[] = [];

  async answer(command: readonly string[]): Promise<unknown> {
    const [name, sha = "", count, ...rest] = command;
    if (name === "info") {
      const said = this.info();
      if (said instanceof Error) throw said;
      return said;
    }
    if (name === "config") return ["appendonly", "no"];
    if (name === "exists") {
      this.reads.push(command);
      return this.exists;
    }
    if (name === "hmget" || name === "get") {
      this.reads.push(command);
      return name === "get" ? "3" : ["4", "value"];
    }
    expect(name).toBe("evalsha");
    const keys = rest.slice(0, Number(count));
    const sent = { script: NAMES.get(sha) ?? "", keys, args: rest.slice(Number(count)) };
    if (sent.script === "layoutVersion") return this.version(sent);
    this.sent.push(sent);
    const answer = await this.scripts[sent.script]?.(sent);
    if (answer instanceof Error) throw answer;
    return answer;
  }

  /** The connection for pushes. */
  get pushes(): Client {
    return this.made.findLast(({ done }) => done.some((call) => call.startsWith("+"))) as Client;
  }
}

async function engineOn(
  options: RedisOptions = {},
  prepare: (wire: Wire) => void = () => {},
  client: object = {},
  cluster = false,
) {
  const [clock, wire] = [new FakeClock(), new Wire()];
  prepare(wire);
  const own = new Client(wire, client);
  if (cluster) Object.assign(own, { nodes: () => [own] });
  const events: EngineEvent[] = [];
  const engine: Engine = await redisEngine(own, {
    clock,
    chance: new SeededChance(1),
    callTimeoutMs: LIMIT_MS,
    ...options,
  });
  engine.listen((event) => events.push(event));
  return { clock, wire, own, engine, events };
}

const each =
  (text: (request: string, key: string) => string): Answer =>
  ({ keys, args }) =>
    keys.map((key, n) => text(args[n] ?? "", key)).join("\n");

describe("the fair layout", () => {
  test("what is asked of one name reaches the server in the order asked, whatever the verb; of other names together", async () => {
    const { wire, engine } = await engineOn({}, ({ scripts }) => {
      scripts["claim"] = each(() => "granted 1000 1 1");
      scripts["release"] = each(() => "released");
    });
    const release = (name: string, id: string) => engine.release({ name, id, tombstone: "never" });
    const answers = [
      ...[engine.claim(claimOf("a")), engine.claim(claimOf("b")), release("a", "1"), release("c", "2")],
      engine.claim(claimOf("a")),
    ];
    await Promise.all(answers);
    expect(wire.sent.map(({ script, keys }) => `${script} ${keys.map((key) => key.at(-1)).join("")}`)).toEqual([
      ...["claim ab", "release ac", "claim a"],
    ]);
    await engine[Symbol.asyncDispose]();
  });

  test("a claim is sent with its own owner and data, whatever goes with it, and to each engine with its times", async () => {
    const answers = ({ scripts }: Wire) => (scripts["claim"] = each(() => "granted 1000 1 1"));
    const idles = [1_000, 70_000];
    const engines = await Promise.all(idles.map((idleMs) => engineOn({ idleMs }, answers)));
    const owners = ["x", "y\u2028"].map((label) => ({ client: "c", host: "h", pid: 1, label }));
    const asked = owners.flatMap((owner) => [
      claimOf("n", { owner }),
      claimOf("n", { owner, data: "0\nlines\n", leaseMs: 60_000, wait: false }),
      claimOf("m", { owner, data: "", capacity: 3, units: 2, exact: true, tokenAtLeast: 7, reserve: 4 }),
    ]);
    const numbers = ["10000 0 0 1 1 1 10000", "60000 0 0 1 1 0 10000", "10000 7+4 1 3 2 1 10000"];
    await Promise.all(asked.flatMap((claim) => engines.map(({ engine }) => engine.claim(claim))));
    for (const [n, { wire, engine }] of engines.entries()) {
      const channel = wire.pushes.done[0]?.slice(1);
      const texts = asked.map(({ id, owner, data, leaseMs }, at) => {
        const rest = data === undefined ? "" : `\n${data}`;
        return `${leaseMs + (idles[n] ?? 0)} ${numbers[at % 3]}\n${id}\n${channel}\n${JSON.stringify(owner)}${rest}`;
      });
      expect(wire.sent.map(({ args }) => args)).toEqual([texts]);
      await engine[Symbol.asyncDispose]();
    }
  });

  test("a library that sends again makes every release leave a tombstone; any other as it was asked", async () => {
    const codes = async (client: object): Promise<(string | undefined)[]> => {
      const { wire, engine } = await engineOn(
        {},
        ({ scripts }) => (scripts["release"] = each(() => "released")),
        client,
      );
      for (const tombstone of ["never", "always", "if-missing", undefined] as const)
        await engine.release({ name: "n", id: "i", ...(tombstone ? { tombstone } : {}) });
      await engine.release({ name: "n", id: "i", to: "next" });
      expect(engine.resends).toBe(!("autoResendUnfulfilledCommands" in client));
      const [first] = wire.sent;
      expect([first?.keys, first?.args.length]).toEqual([["holdfast:lock:n"], 1]);
      return wire.sent.map(({ args }) => args[0]?.replace(/(?<=\n)holdfast:client:[^\n]+(?=\n)/, "channel"));
    };
    const sent = (code: number, to = ""): string => `${code}0008640000000000060000i\nchannel\n${to}`;
    expect(await codes({})).toEqual([sent(1), sent(1), sent(1), sent(1), sent(1, "next")]);
    const asked = [sent(0), sent(1), sent(2), sent(1), sent(1, "next")];
    expect(await codes({ autoResendUnfulfilledCommands: false })).toEqual(asked);
  });

  test("heartbeats go a hundred to a call; an error is its own, and only when nothing was learned the call fails", async () => {
    let fails = (_call: number): boolean => false;
    let calls = 0;
    const { wire, engine } = await engineOn({}, ({ scripts }) => {
      scripts["renew"] = (sent) => {
        calls += 1;
        if (fails(calls)) return new Error("Connection is closed.");
        return each((request) => {
          const [id = ""] = request.split("\n");
          return id === "7" ? "error WRONGTYPE no" : id === "8" ? "nonsense" : `granted 5 ${id}1 1`;
        })(sent);
      };
    });
    const requests = Array.from({ length: 201 }, (_, n) => ({
      name: `n${n}`,
      id: String(n),
      ...(n === 1 ? { leaseMs: 9, tokenAtLeast: 4 } : {}),
    }));
    const answers = await engine.renew(requests);
    expect(wire.sent.map(({ keys }) => keys.length)).toEqual([100, 100, 1]);
    expect(wire.sent[0]?.args.slice(0, 2)).toEqual(["0\n\n", "1\n9\n4"]);
    expect(wire.sent[2]?.args).toEqual(["200\n\n", "86400000"]);
    for (const [n, answer] of answers.entries()) {
      expect(answer).toMatchObject(
        n === 7 || n === 8 ? { kind: "unknown" } : { kind: "granted", token: Number(`${n}1`) },
      );
    }
    fails = (call) => call % 3 === 2;
    calls = 0;
    const some = await engine.renew(requests);
    expect([some[99]?.kind, some[100]?.kind, some[199]?.kind, some[200]?.kind]).toEqual([
      "granted",
      "unknown",
      "unknown",
      "granted",
    ]);
    fails = (call) => call === 1;
    calls = 0;
    expect((await engine.renew(requests)).map(({ kind }) => kind)).toEqual(
      requests.map((_, n) => (n < 100 ? "unknown" : "granted")),
    );
    fails = () => true;
    await expect(engine.renew(requests)).rejects.toThrow("closed");
    expect(await engine.renew([])).toEqual([]);
  });

  test("who waits is pushed to on a channel of its own; what is pushed is told, and what is no push is not", async () => {
    const { clock, wire, engine, events } = await engineOn(
      { prefix: "p:" },
      ({ scripts }) => {
        scripts["claim"] = each(() => "queued 5 100 \tother");
        scripts["renew"] = each(() => "queued 5 100 ");
      },
      { keyPrefix: "lib:" },
    );
    const [channel = ""] = wire.pushes.done.map((call) => call.slice(1));
    expect(channel).toMatch(/^p:client:.+/);
    const { claim, renew } = wire.scripts;
    wire.scripts["claim"] = wire.scripts["renew"] = each(() => "granted 100 5 5");
    await engine.claim(claimOf("n"));
    await engine.renew([{ name: "n", id: "i" }]);
    // Who holds waits for no push.
    await clock.advance(LIMIT_MS);
    expect(wire.pushes.done.filter((call) => call === "ping")).toEqual([]);
    Object.assign(wire.scripts, { claim, renew });
    wire.sent.length = 0;
    // Its client may let it go on when the one ahead of it does.
    const queued = { kind: "queued", token: 5, nextMs: 100, ahead: "other" };
    expect(await engine.claim(claimOf("n"))).toStrictEqual(queued);
    expect(wire.sent[0]?.args[0]).toContain(`\n${channel}\n{`);
    await clock.advance(LIMIT_MS);
    expect(wire.pushes.done.filter((call) => call === "ping")).toHaveLength(1);
    await clock.advance(10 * LIMIT_MS);
    expect(wire.pushes.done.filter((call) => call === "ping")).toHaveLength(1);
    await engine.renew([{ name: "n", id: "i" }]);
    await clock.advance(LIMIT_MS);
    expect(wire.pushes.done.filter((call) => call === "ping")).toHaveLength(2);
    wire.pushes.emit("message", channel, "granted\ni\nlib:p:lock:n\n7 3");
    wire.pushes.emit("message", channel, "nonsense");
    wire.pushes.emit("message", "another", "lost\ni\nlib:p:lock:n");
    expect(events).toEqual([{ kind: "granted", name: "n", id: "i", token: 7, floor: 3 }]);
    expect(engine.guarantees.wake).toBe("push");
  });

  test("after a reconnect all who wait are woken, and what the guarantees depend on is read again", async () => {
    const { clock, wire, engine, events } = await engineOn();
    expect(engine.guarantees).toMatchObject({ exclusion: "single-server", wake: "push" });
    expect([engine.leaseMinMs, engine.reserves]).toEqual([1, true]);
    wire.replicas = 1;
    wire.pushes.emit("end");
    expect([events, engine.guarantees.wake]).toEqual([[{ kind: "wake" }], "poll"]);
    await clock.advance(1000);
    expect(events).toEqual([{ kind: "wake" }, { kind: "wake" }]);
    expect(engine.guarantees).toMatchObject({ exclusion: "until-failover", wake: "push" });
  });

  test("a layout that is too new is refused, also when it is so after a reconnect; an answer that was spoiled once is not", async () => {
    const newer: Answer = () => "900-901";
    await expect(engineOn({}, (wire) => (wire.version = newer))).rejects.toBeInstanceOf(EngineRefusedError);
    const { clock, wire, engine, events } = await engineOn({}, ({ scripts }) => (scripts["resize"] = () => "resized"));
    const answers = [newer];
    const fine = wire.version;
    let asked = 0;
    wire.version = (sent) => {
      asked += 1;
      return (answers.shift() ?? fine)(sent);
    };
    wire.pushes.emit("end");
    await settle();
    expect(asked).toBe(0);
    await clock.advance(1000);
    expect(asked).toBe(2);
    expect(await engine.resize({ name: "n", id: "i" }, 1)).toBe("resized");
    wire.version = newer;
    wire.pushes.emit("end");
    await clock.advance(1000);
    await expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toBeInstanceOf(EngineRefusedError);
    expect(events.at(-1)).toMatchObject({ kind: "warning", message: expect.stringContaining("900") });
    wire.version = fine;
    wire.pushes.emit("end");
    await clock.advance(1000);
    expect(await engine.resize({ name: "n", id: "i" }, 1)).toBe("resized");
  });

  test("where it cannot subscribe, or is told not to, it polls; only the first is a warning", async () => {
    const refused = await engineOn({}, (wire) => (wire.refuses = true));
    await settle();
    expect(refused.events).toEqual([
      { kind: "warning", message: expect.stringMatching(/does not push here \(.*NOPERM/) },
    ]);
    const told = await engineOn({ wake: "poll" });
    await settle();
    expect([told.events, told.wire.made]).toEqual([[], []]);
    for (const { engine, wire } of [refused, told]) {
      wire.scripts["claim"] = each(() => "granted 1 1 1");
      await engine.claim(claimOf("n"));
      expect(engine.guarantees.wake).toBe("poll");
      expect(wire.sent[0]?.args[0]).toContain("\n\n{");
    }
    expect(refused.wire.made.map(({ done }) => done.at(-1))).toEqual(["disconnect"]);
  });

  test("after the end every verb says so, what was opened is closed, and the client stays open", async () => {
    const { clock, wire, own, engine, events } = await engineOn();
    await Promise.all([engine[Symbol.asyncDispose](), engine[Symbol.asyncDispose]()]);
    await engine[Symbol.asyncDispose]();
    const ref = { name: "n", id: "i" };
    for (const call of [
      () => engine.claim(claimOf("n")),
      () => engine.release(ref),
      () => engine.renew([ref]),
      () => engine.resize(ref, 1),
      () => engine.setCapacity("n", 1, 2),
      () => engine.serverInfo?.() as Promise<unknown>,
      () => states(engine, {}),
    ]) {
      await expect(call()).rejects.toBeInstanceOf(ClosedError);
    }
    expect([wire.sent, own.done, clock.pending]).toEqual([[], [], 0]);
    expect(wire.made.map(({ done }) => done.filter((call) => call === "disconnect"))).toEqual([["disconnect"]]);
    const [channel = ""] = wire.pushes.done.map((call) => call.slice(1));
    wire.pushes.emit("message", channel, "lost\ni\nholdfast:lock:n");
    wire.made[0]?.emit("end");
    expect(events).toEqual([]);
  });

  test("opening fails with what the server says about itself, and leaves nothing open but the client", async () => {
    for (const [said, error] of [
      [new Error("NOAUTH Authentication required."), EngineRefusedError],
      [new Error("LOADING Redis is loading the dataset in memory"), Error],
      ["role:slave\r\n", EngineRefusedError],
    ] as const) {
      const wires: Wire[] = [];
      const opening = engineOn({}, (wire) => {
        wires.push(wire);
        wire.info = () => said;
        // Its own error says less.
        wire.version = () => Promise.reject(new Error("READONLY"));
      });
      await expect(opening).rejects.toBeInstanceOf(error);
      await expect(opening).rejects.toThrow(said instanceof Error ? said.message.slice(0, 7) : "replica");
      expect(wires[0]?.made).toEqual([]);
    }
    const wires: Wire[] = [];
    await expect(engineOn({ ack: "majority" }, (wire) => wires.push(wire))).rejects.toBeInstanceOf(UnsupportedError);
    expect(wires[0]?.made).toEqual([]);
  });

  test("a version that cannot be asked for after a reconnect changes nothing, and a wake is told all the same", async () => {
    const { clock, wire, engine, events } = await engineOn({}, ({ scripts }) => (scripts["resize"] = () => "resized"));
    wire.version = () => Promise.reject(new Error("LOADING"));
    wire.info = () => new Error("LOADING");
    wire.pushes.emit("end");
    await clock.advance(1000);
    expect(events).toEqual([{ kind: "wake" }, { kind: "wake" }]);
    expect(await engine.resize({ name: "n", id: "i" }, 1)).toBe("resized");
    expect(engine.guarantees).toMatchObject({ exclusion: "until-failover", wake: "push" });
  });

  test("cells are at the prefix, are told what is pushed, and end with the engine", async () => {
    const { wire, engine } = await engineOn({ prefix: "p:", idleMs: 5 }, ({ scripts }) => {
      scripts["cellWrite"] = () => "written 5\nnew";
    });
    expect(await engine.cells?.read("c")).toEqual({ version: 4, value: "value" });
    expect(wire.reads).toEqual([["hmget", "p:cell:c", "version", "value"]]);
    await engine.cells?.write({ name: "c", operation: "o", expected: 4, value: "new" });
    expect(wire.sent[0]?.args.slice(-3)).toEqual(["p:cell:c", "60000", "5"]);
    const seen: unknown[] = [];
    engine.cells?.watch("c", (cell) => seen.push(cell.value));
    await settle();
    wire.pushes.emit("message", "p:cell:c", "6\npushed");
    await settle();
    expect(seen).toEqual(["pushed"]);
    await engine[Symbol.asyncDispose]();
    wire.pushes.emit("message", "p:cell:c", "7\nlate");
    await settle();
    expect(seen).toEqual(["pushed"]);
    const polling = await engineOn({ wake: "poll" });
    polling.engine.cells?.watch("c", () => {});
    await polling.clock.advance(1000);
    expect(polling.wire.reads).toHaveLength(1);
    await polling.engine[Symbol.asyncDispose]();
    expect(polling.clock.pending).toBe(0);
  });

  test("who holds a name is asked for at its key", async () => {
    const { wire, engine } = await engineOn({ prefix: "p:" }, ({ scripts }) => {
      scripts["inspect"] = () => ["name 2 7", 'claim 1 40 7 -\ni\n{"client":"c","host":"h","pid":1}'];
    });
    const holder = { id: "i", units: 1, leftMs: 40, token: 7, owner: { client: "c", host: "h", pid: 1 } };
    const state = { name: "n", capacity: 2, lastToken: 7, holders: [holder], waiters: [] };
    expect(await states(engine, { name: "n" })).toStrictEqual([state]);
    expect(wire.sent).toEqual([{ script: "inspect", keys: ["p:lock:n"], args: ["86400000"] }]);
  });

  test("each claim says who claims; the same owner is written out once", async () => {
    const { wire, engine } = await engineOn({}, ({ scripts }) => (scripts["claim"] = each(() => "granted 1000 1 1")));
    let reads = 0;
    const owner = (client: string) => ({
      get client() {
        reads += 1;
        return client;
      },
      ...{ host: "h", pid: 1 },
    });
    const [one, two] = [owner("one"), owner("two")];
    const [withData, ...others] = [one, one, two, two, one].map((who) => claimOf("n", { owner: who }));
    for (const claim of [{ ...withData, data: "a\nb" } as ClaimRequest, ...others]) await engine.claim(claim);
    const said = wire.sent.map(({ args }) => /(?<=\n)\{.*/s.exec(args[0] ?? "")?.[0]);
    const text = (client: string): string => JSON.stringify({ client, host: "h", pid: 1 });
    expect(said).toEqual([`${text("one")}\na\nb`, text("one"), text("two"), text("two"), text("one")]);
    expect(reads).toBe(3);
  });

  test("in a Cluster each name goes by itself, and a script is told where it is", async () => {
    const { wire, engine } = await engineOn(
      {},
      ({ scripts }) => {
        scripts["claim"] = each(() => "granted 1000 1 1");
        scripts["release"] = each(() => "released");
        scripts["renew"] = each(() => "granted 1000 1 1");
      },
      {},
      true,
    );
    await Promise.all(["a", "b"].map((name) => engine.claim(claimOf(name))));
    await Promise.all(["a", "b"].map((name) => engine.release({ name, id: "i" })));
    await engine.renew(["a", "b", "a"].map((name, n) => ({ name, id: String(n) })));
    const shown = wire.sent.map(({ script, keys }) => `${script} ${keys.map((key) => key.at(-1)).join("")}`);
    expect(shown).toEqual(["claim a", "claim b", "release a", "release b", "renew aa", "renew b"]);
    expect(wire.sent.map(({ args }) => args.length)).toEqual([2, 2, 1, 1, 3, 2]);
    expect(wire.sent[0]?.args[1]).toBe("1");
    await engine[Symbol.asyncDispose]();
  });

  test("a silent client that was handed in is told of, while it says that it is connected", async () => {
    const { clock, own, wire, engine, events } = await engineOn();
    wire.scripts["resize"] = () => new Promise(() => {});
    const asked = async (): Promise<void> => {
      const call = expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toThrow(/no answer within/);
      await clock.advance(LIMIT_MS);
      await call;
    };
    own.status = "reconnecting";
    await asked();
    expect(events).toEqual([]);
    own.status = "ready";
    await asked();
    expect(events).toEqual([{ kind: "warning", message: expect.stringMatching(/handed in said nothing for 5000 ms/) }]);
  });

  test("a client that was handed in finds a connection by itself, however long that takes", async () => {
    const { clock, own, engine, events } = await engineOn({}, () => {}, { enableOfflineQueue: false });
    own.status = "reconnecting";
    for (let n = 0; n < 20; n += 1) {
      await expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toBeInstanceOf(NotSentError);
      await clock.advance(LIMIT_MS / 2);
    }
    expect(events).toEqual([]);
  });
});

describe("opened by URL", () => {
  /** The clients that are made for it, on one wire. */
  async function opened(
    prepare: (wire: Wire) => void = () => {},
    options: RedisUrlOptions = {},
    url = "redis://h:7/3",
  ) {
    const [clock, wire] = [new FakeClock(), new Wire()];
    prepare(wire);
    const clients: (Client & { given?: unknown })[] = [];
    const asked: string[] = [];
    const state = { connects: async (): Promise<void> => {} };
    const load = async (library: string): Promise<unknown> => {
      asked.push(library);
      class Redis extends Client {
        readonly given: unknown;
        constructor(given: object) {
          super(wire, given);
          this.given = given;
          clients.push(this);
        }
        override connect = () => state.connects();
      }
      return { Redis };
    };
    const events: EngineEvent[] = [];
    const given = { clock, chance: new SeededChance(1), callTimeoutMs: LIMIT_MS, ...options };
    const opening = openRedis(url, given, load);
    const engine = await opening.catch((error: unknown) => Promise.reject(Object.assign(error as Error, { clients })));
    engine.listen((event) => events.push(event));
    return { clock, wire, clients, asked, state, engine, events };
  }

  test.each(["fair", "plain"] as const)(
    "the client is made for the URL, and is closed with the engine, once (%s)",
    async (layout) => {
      const { wire, clients, asked, engine } = await opened(() => {}, { layout, tls: { servername: "s" } });
      expect(asked).toEqual(["ioredis"]);
      const given = { host: "h", port: 7, db: 3, tls: { servername: "s" } };
      expect(clients.map((client) => client.given)).toMatchObject([given]);
      for (let n = 0; n < 2; n += 1) await engine[Symbol.asyncDispose]();
      expect([...clients, ...wire.made].map(({ done }) => done.filter((call) => !call.startsWith("+")))).toEqual([
        ["disconnect"],
        ["disconnect"],
      ]);
    },
  );

  test("what cannot be opened is closed", async () => {
    const failed = opened((wire) => (wire.version = () => "900-901"));
    await expect(failed).rejects.toBeInstanceOf(EngineRefusedError);
    const { clients } = (await failed.catch((error: unknown) => error)) as { clients: Client[] };
    expect(clients.map(({ done }) => done)).toEqual([["disconnect"]]);
  });

  test("of the libraries the first that is installed is used; with credentials only one that asks for them", async () => {
    for (const [options, libraries] of [
      [{}, ["ioredis", "redis"]],
      [{ credentials: () => ({ password: "p" }) }, ["redis"]],
    ] as const) {
      const asked: string[] = [];
      const load = (library: string): Promise<never> => {
        asked.push(library);
        const error = new Error(`Cannot find package '${library}'`);
        return Promise.reject(Object.assign(error, { code: "ERR_MODULE_NOT_FOUND" }));
      };
      await expect(openRedis("redis://h", options, load)).rejects.toThrow(`npm install ${libraries[0]}`);
      expect(asked).toEqual(libraries);
    }
  });

  test("a client that has gone silent is replaced, whatever it says of itself, and that is told", async () => {
    for (const status of ["ready", "connecting"]) {
      const { clock, wire, clients, engine, events } = await opened();
      const [first] = clients as [Client];
      const silent = (): unknown => new Promise(() => {});
      wire.scripts["resize"] = silent;
      const call = expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toThrow(/no answer within/);
      // As one that hangs while it connects, and queues what it is told.
      Object.assign(first, { status });
      await clock.advance(LIMIT_MS);
      await call;
      await settle();
      expect(clients.map(({ done }) => done)).toEqual([["disconnect"], []]);
      const told = { kind: "warning", message: "The connection to Redis said nothing for 5000 ms and was replaced." };
      expect(events).toEqual([told]);
      wire.scripts["resize"] = () => "resized";
      first.call = () => Promise.reject(new Error("closed"));
      expect(await engine.resize({ name: "n", id: "i" }, 1)).toBe("resized");
      await engine[Symbol.asyncDispose]();
      expect(clients.map(({ done }) => done)).toEqual([["disconnect"], ["disconnect"]]);
    }
  });

  test("a client that finds no connection for long is replaced, and one that is made while all is closed is closed", async () => {
    const { clock, clients, state, engine } = await opened();
    const [first] = clients as [Client];
    first.status = "reconnecting";
    let connected = (): void => {};
    state.connects = () => new Promise((resolve) => (connected = resolve));
    const asks = async (): Promise<number> => {
      await expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toBeInstanceOf(NotSentError);
      return clients.length;
    };
    const made: number[] = [];
    for (let n = 0; n < 5; n += 1) {
      made.push(await asks());
      await clock.advance(LIMIT_MS / 2);
    }
    expect(made).toEqual([1, 1, 1, 1, 2]);
    await engine[Symbol.asyncDispose]();
    connected();
    await settle();
    expect(clients.map(({ done }) => done.at(-1))).toEqual(["disconnect", "disconnect"]);
    expect(clock.pending).toBe(0);
  });
});

describe("with acknowledgements", () => {
  const claims = ({ scripts }: Wire): void => {
    scripts["claim"] = each(() => "granted 1000 1 1");
    scripts["renew"] = each(() => "granted 1000 1 1");
    scripts["release"] = each(() => "released");
  };

  test.each([
    [1, 1],
    [2, 1],
    [3, 2],
    [4, 2],
    [5, 3],
  ])("a majority of the primary and %i replicas is %i of them", async (replicas, needed) => {
    const { wire, engine } = await engineOn({ ack: "majority" }, (one) => {
      claims(one);
      [one.replicas, one.acked] = [replicas, needed];
    });
    expect((await engine.claim(claimOf("n"))).kind).toBe("granted");
    expect(wire.waits).toEqual([[String(needed), "1000"]]);
    wire.acked = needed - 1;
    await expect(engine.claim(claimOf("n"))).rejects.toThrow(`${needed - 1} of ${needed} replicas`);
    expect(wire.sent.at(-1)?.script).toBe("release");
  });

  test("a number is that number; replicas are waited for half as long as a call may take at most; without any a majority is refused", async () => {
    const { wire, engine } = await engineOn({ ack: 7, ackTimeoutMs: 4000 }, (one) => {
      claims(one);
      one.acked = 7;
    });
    await engine.claim(claimOf("n"));
    await engine.renew([{ name: "n", id: "i" }]);
    expect(wire.waits).toEqual([
      ["7", "2500"],
      ["7", "2500"],
    ]);
    await expect(engineOn({ ack: "majority" }, claims)).rejects.toBeInstanceOf(UnsupportedError);
  });

  test("pitfall 37: a pushed grant is a reason to ask, not a grant; a loss is one", async () => {
    const { wire, engine, events } = await engineOn({ ack: 1 }, claims);
    const [channel = ""] = wire.pushes.done.map((call) => call.slice(1));
    wire.pushes.emit("message", channel, "granted\ni\nholdfast:lock:n\n7 3");
    wire.pushes.emit("message", channel, "lost\ni\nholdfast:lock:n");
    expect(events).toEqual([
      { kind: "wake", name: "n", id: "i" },
      { kind: "lost", name: "n", id: "i" },
    ]);
    await engine[Symbol.asyncDispose]();
    expect(wire.made.map(({ done }) => done.at(-1))).toEqual(["disconnect", "disconnect"]);
  });

  test("who waits, is refused or has ended had nothing that replicas could lack", async () => {
    const { wire, engine } = await engineOn({ ack: 1 }, claims);
    for (const [text, answer] of [
      ["queued 5 100 \tother", { kind: "queued", token: 5, nextMs: 100 }],
      ["busy 7 ", { kind: "busy", nextMs: 7 }],
      ["mismatch 3", { kind: "mismatch", capacity: 3 }],
      ["gone", { kind: "gone" }],
    ] as const) {
      wire.scripts["claim"] = each(() => text);
      expect(await engine.claim(claimOf("n"))).toStrictEqual(answer);
    }
    wire.scripts["renew"] = each(() => "revoked");
    expect(await engine.renew([{ name: "n", id: "i" }])).toEqual([{ kind: "gone", revoked: true }]);
    expect(wire.sent.filter(({ script }) => script === "release")).toEqual([]);
  });

  test("a connection for WAIT that is silent is replaced, which is told; what was asked on it fails", async () => {
    const { clock, wire, engine, events } = await engineOn({ ack: 1 }, (one) => {
      claims(one);
      [one.acked, one.silent] = [1, true];
    });
    const acking = wire.made.filter(({ done }) => done.length === 0);
    const call = expect(engine.claim(claimOf("n"))).rejects.toThrow(/no answer within/);
    await clock.advance(LIMIT_MS);
    await call;
    await settle();
    expect(acking.map(({ done }) => done)).toEqual([["disconnect"]]);
    const what = "The connection on which replicas acknowledge";
    expect(events).toEqual([{ kind: "warning", message: `${what} said nothing for 5000 ms and was replaced.` }]);
    wire.silent = false;
    expect((await engine.claim(claimOf("n"))).kind).toBe("granted");
    await engine[Symbol.asyncDispose]();
    expect(wire.made.map(({ done }) => done.at(-1))).toEqual(wire.made.map(() => "disconnect"));
    expect(clock.pending).toBe(0);
  });

  test("what was released is acknowledged no longer", async () => {
    const { wire, engine } = await engineOn({ ack: 1 }, (one) => {
      claims(one);
      one.acked = 1;
    });
    const claim = claimOf("n");
    await engine.claim(claim);
    wire.acked = 0;
    await expect(engine.renew([claim])).rejects.toThrow(/0 of 1/);
    await engine.release(claim);
    expect(await engine.renew([claim])).toEqual([{ kind: "gone" }]);
  });
});

describe.each(["plain", "redisson", "redisson-fenced"] as const)("the %s layout", (layout) => {
  const [claim, release, renew, inspect] = (layout === "plain"
    ? ["plainClaim", "plainRelease", "plainRenew", "plainInspect"]
    : ["redissonClaim", "redissonRelease", "redissonRenew", "redissonInspect"]) as unknown as [
    string,
    string,
    string,
    string,
  ];
  const keys = ["n", expect.stringMatching(/^holdfast:tombstone:\{n\}:/)];

  test("a claim is at exactly its name, with its tombstone beside it; who is refused and waits is woken", async () => {
    const { clock, wire, engine, events } = await engineOn(
      { layout },
      ({ scripts }) => (scripts[claim] = () => "granted 900 5 5"),
    );
    expect(await engine.claim(claimOf("n", { leaseMs: 900 }))).toEqual({
      kind: "granted",
      leftMs: 900,
      token: 5,
      floor: 5,
    });
    expect(await engine.claim(claimOf("n", { exact: true, tokenAtLeast: 3 }))).toMatchObject({ live: [5] });
    const more = layout === "redisson-fenced" ? ["redisson_lock_token:{n}"] : [];
    expect(wire.sent[0]?.keys).toEqual([...keys, ...more]);
    expect(wire.sent.map(({ args }) => args.slice(1))).toEqual([
      ["900", "0"],
      ["10000", "3"],
    ]);
    wire.scripts[claim] = () => "busy";
    expect(await engine.claim(claimOf("n", { wait: false }))).toEqual({ kind: "busy" });
    await clock.advance(LIMIT_MS);
    const calls = (): readonly string[] => wire.pushes.done.slice(1);
    expect([calls(), events]).toEqual([[], []]);
    expect(await engine.claim(claimOf("n"))).toEqual({ kind: "busy" });
    await settle();
    const channel = layout === "plain" ? "holdfast:plain" : "redisson_lock__channel:{n}";
    if (layout !== "plain")
      expect([calls(), events.splice(0)]).toEqual([[`+${channel}`], [{ kind: "wake", name: "n" }]]);
    // It is asked whether it is there, while somebody waits for it.
    if (layout === "plain") await clock.advance(LIMIT_MS);
    if (layout === "plain") expect(calls()).toEqual(["ping"]);
    wire.pushes.emit("message", channel, layout === "plain" ? "n" : "0");
    expect(events).toEqual([{ kind: "wake", name: "n" }]);
    for (const wrong of [{ capacity: 2 }, { units: 2 }, { reserve: 1 }])
      await expect(engine.claim(claimOf("n", wrong))).rejects.toBeInstanceOf(UnsupportedError);
    await expect(engine.setCapacity("n", 1, 2)).rejects.toBeInstanceOf(UnsupportedError);
    expect([engine.guarantees.order, engine.guarantees.wake, engine.leaseMinMs]).toEqual(["none", "push", 1]);
  });

  test("a release says where who waits is told, and leaves a tombstone unless no copy of the claim can come", async () => {
    for (const [client, tombstone, ms] of [
      [{}, "never", "60000"],
      [{ autoResendUnfulfilledCommands: false }, "never", "0"],
      [{ autoResendUnfulfilledCommands: false }, "always", "60000"],
      [{ autoResendUnfulfilledCommands: false }, "if-missing", "60000"],
    ] as const) {
      const { wire, engine } = await engineOn(
        { layout },
        ({ scripts }) => (scripts[release] = () => "released"),
        client,
      );
      expect(engine.resends).toBe(client === undefined || !("autoResendUnfulfilledCommands" in client));
      expect(await engine.release({ name: "n", id: "i", tombstone })).toBe("released");
      const push = layout === "plain" ? ["holdfast:plain", "n"] : ["redisson_lock__channel:{n}", "0"];
      expect(wire.sent).toEqual([{ script: release, keys, args: ["i", ms, ...push, "0"] }]);
      wire.scripts[release] = () => "other";
      await expect(engine.release({ name: "n", id: "i" })).rejects.toThrow(/means nothing/);
    }
  });

  test("a heartbeat that finds nothing asks who ended it; each has its own answer", async () => {
    const { wire, engine } = await engineOn({ layout }, ({ scripts }) => {
      scripts[renew] = ({ keys: [name] }) =>
        name === "gone" ? "gone" : name === "cut" ? new Error("cut") : "granted 9 5 5";
    });
    const ids = ["held", "gone", "cut"].map((name) => ({ name, id: "i", leaseMs: 9 }));
    expect(await engine.renew(ids)).toMatchObject([{ kind: "granted" }, { kind: "gone" }, { kind: "unknown" }]);
    expect(wire.sent[0]?.args).toEqual(["i", "9"]);
    wire.exists = 1;
    expect(await engine.renew(ids.slice(0, 2))).toEqual([expect.anything(), { kind: "gone", revoked: true }]);
    expect(wire.reads.at(-1)).toEqual(["exists", "holdfast:tombstone:{gone}:i"]);
    await expect(engine.renew(ids.slice(2))).rejects.toThrow("cut");
    // Who ended it is not known where that is not answered; that it has ended is.
    wire.exists = Promise.reject(new Error("cut"));
    expect(await engine.renew(ids.slice(0, 2))).toEqual([expect.anything(), { kind: "gone" }]);
    expect(await engine.renew([{ name: "held", id: "i" }])).toMatchObject([{ kind: "granted" }]);
    expect(wire.sent.at(-1)?.args).toEqual(["i", "0"]);
    expect(await engine.resize({ name: "held", id: "i" }, 1)).toBe("resized");
    expect(wire.sent.at(-1)?.args).toEqual(["i", "0"]);
    expect(await engine.resize({ name: "held", id: "i" }, 2)).toBe("refused");
    expect(await engine.resize({ name: "gone", id: "i" }, 1)).toBe("gone");
  });

  test("who holds is told, ours with its token, another program's without, and for ever where it has no end", async () => {
    const { wire, engine } = await engineOn({ layout });
    const held = async (text: string, filter: object = { name: "n" }) => {
      wire.scripts[inspect] = () => text;
      return states(engine, filter);
    };
    const ours = layout === "plain" ? "id:x:12" : "holdfast:id:x:12";
    expect(await held(`held 40\n${ours}`)).toEqual([
      {
        ...{ name: "n", capacity: 1, lastToken: 12, waiters: [] },
        holders: [{ id: "id:x", units: 1, leftMs: 40, token: 12, owner: { client: ours, host: "unknown", pid: 0 } }],
      },
    ]);
    expect((await held("held -1\nother"))[0]?.holders).toMatchObject([{ id: "other", token: 0, leftMs: Infinity }]);
    expect((await held("held 0\nother"))[0]?.holders).toMatchObject([{ leftMs: 0 }]);
    expect(await held("free")).toEqual([]);
    expect(await held("held 1\nother", { name: "n", prefix: "m" })).toEqual([]);
    expect(await held("held 1\nother", { name: "nm", prefix: "n" })).toHaveLength(1);
    await expect(held("free", {})).rejects.toBeInstanceOf(UnsupportedError);
  });

  test("after the end every verb says so, and nothing stays open but the client", async () => {
    const { clock, own, wire, engine, events } = await engineOn(
      { layout },
      ({ scripts }) => (scripts[claim] = () => "busy"),
    );
    await engine.claim(claimOf("n"));
    await settle();
    await engine[Symbol.asyncDispose]();
    await engine[Symbol.asyncDispose]();
    const ref = { name: "n", id: "i" };
    for (const call of [
      () => engine.claim(claimOf("n")),
      () => engine.release(ref),
      () => engine.renew([ref]),
      () => engine.resize(ref, 1),
      () => engine.serverInfo?.() as Promise<unknown>,
      () => states(engine, { name: "n" }),
    ]) {
      await expect(call()).rejects.toBeInstanceOf(ClosedError);
    }
    expect([clock.pending, own.done, wire.made.map(({ done }) => done.at(-1))]).toEqual([0, [], ["disconnect"]]);
    const before = events.length;
    wire.made[0]?.emit("message", "holdfast:plain", "n");
    expect(events).toHaveLength(before);
  });

  test("ack, and before Redisson's keys a prefix of the library, are refused", async () => {
    await expect(engineOn({ layout, ack: 1 })).rejects.toBeInstanceOf(UnsupportedError);
    const prefixed = engineOn({ layout }, () => {}, { keyPrefix: "lib:" });
    if (layout === "plain") expect((await prefixed).engine.kind).toBe("redis");
    else await expect(prefixed).rejects.toBeInstanceOf(UnsupportedError);
    const { latches } = (await engineOn({ layout })).engine as { latches?: unknown };
    expect(latches !== undefined).toBe(layout !== "plain");
  });

  test("the server is asked who it is, and a replica is refused", async () => {
    const { engine } = await engineOn({ layout });
    expect(engine.guarantees).toMatchObject({ exclusion: "single-server", survivesRestart: false });
    expect(await engine.serverInfo?.()).toMatchObject({ replicas: 0, replica: false });
    const replica = engineOn({ layout }, (wire) => (wire.info = () => "role:slave\r\n"));
    await expect(replica).rejects.toBeInstanceOf(EngineRefusedError);
  });

  test("in a Cluster a release is published on sharded channels too, on which Redisson's are not heard", async () => {
    const { wire, engine } = await engineOn(
      { layout },
      ({ scripts }) => (scripts[release] = () => "released"),
      {},
      true,
    );
    expect(engine.guarantees.wake).toBe(layout === "plain" ? "push" : "poll");
    await engine.release({ name: "n", id: "i" });
    expect(wire.sent[0]?.args.at(-1)).toBe("1");
  });

  test("latches are read at their names, and end with the engine", async () => {
    if (layout === "plain") return;
    const { clock, wire, engine } = await engineOn({ layout, wake: "poll" });
    expect(await engine.latches?.read("l")).toMatchObject({ version: 3 });
    expect(wire.reads).toEqual([["get", "l"]]);
    engine.latches?.watch("l", () => {});
    await engine[Symbol.asyncDispose]();
    expect(clock.pending).toBe(0);
  });
});
