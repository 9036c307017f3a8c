import { markdownTable } from "../lib/table.js";
import { count, type Figures, few, figuresOf, type Measure, type Results, share, time } from "./results.js";

/** docs/choosing.md: the words stand here, every figure and every order comes from the results. */
export function choosingOf(results: Results): string {
  const { engines } = results;
  const of = <Name extends Measure>(engine: string, measure: Name, name = "holdfast"): Figures[Name] | string =>
    figuresOf(engines[engine]?.contestants[name] ?? {}, measure);
  const say = <Name extends Measure>(
    engine: string,
    measure: Name,
    words: (figures: Figures[Name]) => string,
    name = "holdfast",
  ): string => {
    const figures = of(engine, measure, name);
    return typeof figures === "string" ? figures : words(figures);
  };
  /** The engines from the one with the smallest figure to the one with the largest. */
  const ranked = <Name extends Measure>(
    measure: Name,
    value: (figures: Figures[Name]) => number | undefined,
    words: (value: number) => string,
  ): string =>
    Object.keys(engines)
      .flatMap((engine) => {
        const figures = of(engine, measure);
        const number = typeof figures === "string" ? undefined : value(figures);
        return number === undefined ? [] : [{ engine, value: number }];
      })
      .toSorted((a, b) => a.value - b.value)
      .map(({ engine, value }) => `${engine} ${words(value)}`)
      .join(", ");
  const pair = (engine: string): string => say(engine, "pair", ({ ms }) => time(ms));
  const handOver = (engine: string): string => say(engine, "handOver", ({ ms }) => time(ms));
  const crash = (engine: string): string => say(engine, "crash", ({ ms }) => time(ms));
  const figures = (engine: string): string =>
    `pair ${pair(engine)}, hand-over ${handOver(engine)}, after a crash: ${crash(engine)}`;

  const have = [
    ["one process", "`memory:`", `${figures("memory")}. Nothing outlives the process, worker threads are not excluded`],
    [
      "several processes, one machine",
      "`sqlite:path`, or no URL at all",
      `${figures("sqlite")}. No server; a dead process is noticed, not waited for`,
    ],
    ["Redis already", "`redis://`", `${figures("redis")}. A fail-over may forget who holds`],
    [
      "PostgreSQL already",
      "`postgres://`",
      `${figures("postgres")}. Nothing new to run, durable, and the token can be checked in the same transaction as your write`,
    ],
    [
      "MySQL or MariaDB already",
      "`mysql://`",
      `${figures("mysql")}. Otherwise as PostgreSQL. Measured and tested on MariaDB: MySQL itself was never run`,
    ],
    [
      "ZooKeeper already",
      "`zookeeper://a,b,c/base`",
      `${figures("zookeeper")}. Consensus with three servers or more; excludes Curator's and Kazoo's locks`,
    ],
    [
      "etcd already",
      "`etcd://a,b,c`",
      `${figures("etcd")}. Consensus with three members or more; excludes \`etcdctl lock\``,
    ],
    [
      "several servers that know nothing of each other",
      "`redlock://a,b,c`, or a list of URLs",
      `${figures("quorum")}. Goes on while a minority is away; one member that forgets or whose clock jumps can break exclusion; order while the member that keeps the queue answers`,
    ],
  ];

  const guarantees = Object.entries(engines).map(([engine, { guarantees: p }]) => [
    engine,
    p.exclusion,
    p.token,
    p.order,
    p.wake,
    p.crashRelease,
    p.survivesRestart ? "yes" : "no",
  ]);

  const fair = (engine: string, name = "holdfast"): string =>
    say(
      engine,
      "hot",
      ({ jain, unluckiest }) => `Jain ${jain.toFixed(3)}, the unluckiest got ${share(unluckiest)} its share`,
      name,
    );
  const herdAt = (name: string): string =>
    say(
      "zookeeper",
      "herd",
      ({ messages, sessions }) =>
        `${few(messages.at(-1) ?? 0)} messages per hand-over with ${count(sessions.at(-1) ?? 0)} waiting`,
      name,
    );

  return `<!-- Made by \`npm run compare\`: the words stand in lab/compare/choosing.ts, the figures come from lab/results/comparison.json. -->

# Choosing an engine

The program stays the same, only the URL changes: a wrong choice costs little. All figures are from [comparison.md](comparison.md), one small
machine without a network or a disk between; take the order of magnitude, not the digits.

## First: what happens if two hold it at once?

**Work is done twice, which is a waste and no more** (a report is built twice, a cache filled twice): a lock for *efficiency*. Any engine will do. Take the
one you run already, or none: \`sqlite:\` needs no server.

**Something is wrong afterwards** (money, stock, a file with two writers): a lock for *correctness*. No engine can do that alone: a program
that was paused after it got the lock does not know that its lease has ended, whatever the store. Hand \`hold.token\` to the resource with each
write and let it refuse older ones; then the engine's guarantees decide how often that is needed, not whether the data is right.

**A lock is not a transaction.** It rolls nothing back, and a holder that dies leaves its work half done. If everything that is written lives in one
database, a transaction, a unique key or \`UPDATE … WHERE version = ?\` is simpler and safer than any lock.

## By what you have

${markdownTable(["you have", "take", "what to expect (from the comparison)"], have)}

Do not set up a consensus store only for locks that are for efficiency, and do not put locks for correctness on a Redis with replicas
without the token: \`connect(url, { require: { exclusion: … } })\` fails at once when a store guarantees too little.

NATS is not among them: [decision 21](decisions/021-no-nats-engine.md) says what its key-value store lacks.

## By what you need

**Speed.** An uncontended pair, from fast to slow: ${ranked("pair", ({ ms }) => ms, time)}. Beside the
cheapest question to the same server (a PING, a SELECT 1) that is ${ranked(
    "pair",
    ({ roundTrips }) => roundTrips,
    (value) => `${few(value)} ×`,
  )}.
If one lock is too slow, use more locks ([striped](recipes/striped.md)) before you use another store.

**A busy lock.** Hand-over to a waiter, from fast to slow: ${ranked("handOver", ({ ms }) => ms, time)}. All engines wake the next
waiter; a quorum, if its members push. Requests to the server from one waiter: ${ranked("waiting", ({ perWaiter }) => perWaiter.at(-1) ?? 0, few)}.

**Order.** \`fifo\` engines serve in order of arrival: redis ${fair("redis")}; raw ioredis with polling ${fair("redis", "raw ioredis")}. A quorum does
while the member that keeps the queue answers: ${fair("quorum")}.

**Back soon after a crash.** The lock of a killed holder was free after: ${ranked("crash", ({ ms }) => ms, time)}, with the defaults (lease 10 s, ZooKeeper's
session 20 s). A shorter \`leaseMs\` or \`sessionTimeoutMs\` shortens that, and makes a pause of the same length a loss.

**Safety that does not depend on the time of day.** zookeeper or etcd with three servers or more: \`exclusion: "consensus"\`; their leases and sessions count by
monotonic clocks, which need only run at about the same speed. A quorum of Redis servers needs clocks that do not jump and members that do not
forget: [one is enough](engines/quorum.md#what-it-assumes) for two holders when a client reached only a bare majority. One Redis, PostgreSQL or MariaDB is as
safe as that one server, its clock and its fail-over. What each of them did when that failed: [faults.md](faults.md).

**Many waiters on ZooKeeper.** The queue: ${herdAt("holdfast")}. The lock of the tutorials, one node that everybody watches: ${herdAt("one node")}.

## What each guaranteed in this run

\`locks.guarantees\`, read off the servers of the comparison: one server each, five for the quorum, Redis without persistence. One ZooKeeper or etcd
server says \`single-server\`; three or more say \`consensus\`.

${markdownTable(["engine", "exclusion", "token", "order", "wake", "after a crash", "survives a restart"], guarantees)}
`;
}
