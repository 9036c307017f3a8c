import { measured } from "../lib/results.js";
import { markdownTable } from "../lib/table.js";
import { translate } from "../lib/translate.js";
import { CHOOSING_PAGE } from "../zh-CN/choosing.js";
import { choosingOf } from "./choosing.js";
import { bars, herdPicture } from "./pictures.js";
import {
  bytes,
  type Contestant,
  count,
  type Figures,
  few,
  figuresOf,
  type Measure,
  type Results,
  share,
  time,
} from "./results.js";

/** A measure's part of the page: its columns, and what its picture shows. */
type Section<Name extends Measure> = {
  readonly measure: Name;
  readonly title: string;
  readonly text: (results: Results) => string;
  readonly columns: (results: Results) => readonly string[];
  readonly row: (figures: Figures[Name], results: Results, engine: string) => readonly string[];
  readonly picture: {
    readonly title: string;
    readonly value: (figures: Figures[Name]) => number;
    readonly says: (value: number) => string;
  };
};

const section = <Name extends Measure>(one: Section<Name>): Section<Name> => one;
const linesOf = ({ sizes }: Results): readonly number[] => sizes.lines as readonly number[];
const inFlight = ({ sizes }: Results): number => sizes.inFlight as number;

const SECTIONS = [
  section({
    measure: "pair",
    title: "An uncontended pair",
    text: () =>
      "`acquire` and `release` of a lock that nobody else wants, one after the other: the median of all pairs of a round, then of the rounds. A round trip is the cheapest question to the same server in the same round.",
    columns: () => ["pair", "in round trips"],
    row: ({ ms, roundTrips }, { engines }, engine) => {
      const { roundTrip } = engines[engine] ?? {};
      return [
        time(ms),
        roundTrips === undefined
          ? "no server"
          : `${few(roundTrips)} × ${roundTrip?.name ?? ""} (${time(roundTrip?.ms ?? 0)})`,
      ];
    },
    picture: { title: "Uncontended pair", value: ({ ms }) => ms, says: time },
  }),
  section({
    measure: "flight",
    title: "Many at once",
    text: (results) => `${inFlight(results)} tasks of one client, each with a lock of its own: pairs per second.`,
    columns: () => ["pairs per second"],
    row: ({ perSecond }) => [count(perSecond)],
    picture: { title: "Pairs per second, many at once", value: ({ perSecond }) => perSecond, says: count },
  }),
  section({
    measure: "handOver",
    title: "Hand-over",
    text: () =>
      "From the call of `release` to the lock in the hand of a waiter that another client (another connection, in the same process) has had in the queue for a while. The worst is the worst of all rounds.",
    columns: () => ["hand-over", "worst"],
    row: ({ ms, worst }) => [time(ms), time(worst)],
    picture: { title: "Hand-over to a waiter", value: ({ ms }) => ms, says: time },
  }),
  section({
    measure: "hot",
    title: "A hot lock, and who gets it",
    text: () =>
      [
        "Sixteen tasks in four processes (memory: in one) want the same lock all the time, for four seconds. The last two count (*warm*); the first two (*cold*) show what a program gets that fights for it now and then. With a fair lock each gets a sixteenth: what the unluckiest task got is given in such shares, and Jain's index is 1 when all got the same and 1/16 when one got everything.",
        "Whoever has just released a lock that keeps no queue asks again at once, and finds it free: it overtakes those who poll (*barging*). That saves the switch to another process, and so such a lock goes round faster the longer a process keeps it; the others pay for it, as the p99 wait and the unluckiest task show. Holdfast keeps the order of arrival. Who wants throughput instead takes `burst` ([mutex](recipes/mutex.md)); `npm run bench -- hot` measures it, and other shapes.",
      ].join("\n\n"),
    columns: () => [
      "holds per second, warm",
      "cold",
      "Jain",
      "unluckiest",
      "p50 wait",
      "p99 wait",
      "clients, a hold",
      "server",
    ],
    row: ({ perSecond, cold, jain, unluckiest, p50, p99, clientUs, serverUs }) => [
      count(perSecond),
      count(cold.perSecond),
      jain.toFixed(3),
      share(unluckiest),
      time(p50),
      time(p99),
      time(clientUs / 1000),
      serverUs === undefined ? "-" : time(serverUs / 1000),
    ],
    picture: {
      title: "Hot lock: share of the unluckiest of 16 tasks (1 is fair)",
      value: ({ unluckiest }) => unluckiest,
      says: share,
    },
  }),
  section({
    measure: "waiting",
    title: "What waiting costs the server",
    text: (results) =>
      `Requests that reach the server (commands, statements, calls; all five servers of a quorum together), as the server itself counts them: from each of ${linesOf(results).at(-1)} waiters of one client (which may ask for several in one request) that ask and then wait for ${time(results.sizes.waitMs as number)}, and for each hand-over, renewals included, while a line is served.`,
    columns: (results) => ["per waiter", ...linesOf(results).map((length) => `per hand-over, ${length} waiting`)],
    row: ({ perWaiter, perHandOver }) => [few(perWaiter.at(-1) ?? 0), ...perHandOver.map(few)],
    picture: {
      title: "Requests to the server per waiter while it waits",
      value: ({ perWaiter }) => perWaiter.at(-1) ?? 0,
      says: few,
    },
  }),
  section({
    measure: "crash",
    title: "After a crash",
    text: () =>
      "A process that holds the lock is killed (`SIGKILL`) at some moment between two heartbeats; how long until a waiter has the lock. Everybody with the default lease of 10 s; on ZooKeeper with the default session of 20 s. A shorter lease or session frees it sooner, in proportion.",
    columns: () => ["free after", "soonest", "latest"],
    row: ({ ms, least, most }) => [time(ms), time(least), time(most)],
    picture: { title: "A killed holder's lock is free after", value: ({ ms }) => ms, says: time },
  }),
  section({
    measure: "heap",
    title: "Memory of a waiter",
    text: ({ sizes }) =>
      `What one more waiter takes of its process's memory (heap and buffers, after a garbage collection), with ${count(sizes.waiters as number)} of them; 64 where each needs a connection of its own, whose memory in the server is not counted.`,
    columns: () => ["per waiter"],
    row: (figures) => [bytes(figures.bytes)],
    picture: { title: "Memory of a waiter, in its process", value: (figures) => figures.bytes, says: bytes },
  }),
] as readonly Section<Measure>[];

type Entry = { readonly engine: string; readonly name: string; readonly contestant: Contestant };

function entries({ engines }: Results): Entry[] {
  return Object.entries(engines).flatMap(([engine, { contestants }]) =>
    Object.entries(contestants).map(([name, contestant]) => ({ engine, name, contestant })),
  );
}

/** Every file that is made of the results, by its path. */
export function pagesOf(results: Results): Record<string, string> {
  const pictures = Object.entries(picturesOf(results)).map(([name, drawn]) => [`docs/comparison/${name}.svg`, drawn]);
  const choosing = choosingOf(results);
  const pages = {
    "docs/comparison.md": pageOf(results),
    "docs/choosing.md": choosing,
    "docs/zh-CN/choosing.md": translate(choosing, CHOOSING_PAGE),
  };
  return { ...pages, ...Object.fromEntries(pictures) };
}

function picturesOf(results: Results): Record<string, string> {
  const drawn = SECTIONS.map(({ measure, picture: { title, value, says } }) => {
    const rows = entries(results).map(({ engine, name, contestant }) => {
      const figures = figuresOf(contestant, measure);
      return {
        engine,
        name,
        said: typeof figures === "string" ? figures : { value: value(figures), text: says(value(figures)) },
      };
    });
    return [measure, bars(title, rows, says === share)];
  });
  return { ...Object.fromEntries(drawn), herd: herdPicture(results) };
}

const picture = (name: string, title: string): string => `![${title}](comparison/${name}.svg)`;

function sectionText(
  results: Results,
  { measure, title, text, columns, row, picture: { title: shown } }: Section<Measure>,
): string {
  const head = ["engine", "who", ...columns(results)];
  const rows = entries(results).map(({ engine, name, contestant }) => {
    const figures = figuresOf(contestant, measure);
    const cells = typeof figures === "string" ? columns(results).map(() => figures) : row(figures, results, engine);
    return [engine, name === "holdfast" ? "**holdfast**" : name, ...cells];
  });
  const table = markdownTable(head, rows, head.map((_, column) => column).slice(2));
  return `## ${title}\n\n${text(results)}\n\n${picture(measure, shown)}\n\n${table}`;
}

function glance(results: Results): string {
  const says = <Name extends Measure>(
    one: Contestant,
    measure: Name,
    say: (figures: Figures[Name]) => string,
  ): string => {
    const figures = figuresOf(one, measure);
    return typeof figures === "string" ? figures : say(figures);
  };
  const rows = Object.entries(results.engines).map(([engine, { contestants }]) => {
    const one = contestants.holdfast ?? {};
    return [
      engine,
      says(one, "pair", ({ ms }) => time(ms)),
      says(one, "flight", ({ perSecond }) => `${count(perSecond)}/s`),
      says(one, "handOver", ({ ms }) => time(ms)),
      says(one, "hot", ({ perSecond }) => `${count(perSecond)}/s`),
      says(one, "hot", ({ jain }) => jain.toFixed(3)),
      says(one, "waiting", ({ perWaiter }) => few(perWaiter.at(-1) ?? 0)),
      says(one, "waiting", ({ perHandOver }) => few(perHandOver.at(-1) ?? 0)),
      says(one, "crash", ({ ms }) => time(ms)),
      says(one, "heap", (figures) => bytes(figures.bytes)),
    ];
  });
  const head = [
    "engine",
    "pair",
    `${inFlight(results)} in flight`,
    "hand-over",
    "hot lock",
    "fairness (Jain)",
    "requests per waiter",
    "requests per hand-over",
    "free after a crash",
    "memory per waiter",
  ];
  return markdownTable(head, rows, head.map((_, column) => column).slice(1));
}

const LEGEND: readonly (readonly [string, string])[] = [
  ["**holdfast**", "this library, with its defaults"],
  ["async-mutex, proper-lockfile", "the libraries of these names; proper-lockfile told to look every 10 ms"],
  [
    "raw ioredis, raw node-redis",
    "`SET NX PX`, a script that compares and deletes; whoever finds it taken looks again every 50 ms",
  ],
  [
    "redlock, redis-semaphore, redlock-universal, verrou",
    "the libraries of these names, told to wait without limit, otherwise with their defaults",
  ],
  [
    "bare commands (quorum)",
    "`SET NX PX` to five servers at once, a script that compares and deletes; looks at no answer and does not wait",
  ],
  ["bare table", "insert a row, delete it; whoever finds it taken looks again every 50 ms; a row without an end"],
  [
    "advisory lock, GET_LOCK",
    "what the database has itself: a connection for each holder and each waiter, no token, no lease",
  ],
  ["one node", "the lock of many a ZooKeeper tutorial: whoever creates the node holds it, all others watch it"],
  ["Kazoo", "the Python library's `Lock`"],
  ["bare key", "a key put if absent under a lease that is kept alive; whoever finds it there looks again every 50 ms"],
];

function herdText({ engines }: Results): string {
  const contestants = engines.zookeeper?.contestants;
  if (contestants === undefined) return "Not run: no ZooKeeper among the engines.";
  const rows = ["holdfast", "one node"].flatMap((name) => {
    const figures = figuresOf(contestants[name] ?? {}, "herd");
    if (typeof figures === "string") return [[name, figures, figures, figures]];
    return figures.sessions.map((sessions, at) => [
      name,
      String(sessions),
      few(figures.messages[at] ?? 0),
      time(figures.ms[at] ?? 0),
    ]);
  });
  return markdownTable(["lock", "sessions waiting", "messages per hand-over", "time per hand-over"], rows, [1, 2, 3]);
}

/** Whether others may have wanted the machine too: a figure without this would say more than was measured. */
function company({ runs }: Results): string {
  const loads = runs.map(({ load }) => load);
  const [least, most] = [Math.min(...loads), Math.max(...loads)];
  const load = runs.length === 1 ? most.toFixed(1) : `${least.toFixed(1)} to ${most.toFixed(1)}`;
  if (most < 1) return "The machine had nothing else to do.";
  return `**The machine was not idle** when the runs began: its load, a mean over the last minute, was ${load}. Take a difference below a factor of two for noise.`;
}

function pageOf(results: Results): string {
  const { circumstances, peers, runs } = results;
  const peerList = Object.entries(peers).map(([name, version]) => `${name} ${version.replace(/^npm:/, "")}`);
  const head = ["date (UTC)", "command", "commit", "seed", "rounds", "load when it began", "minutes"];
  const runRows = runs.map(({ date, command, commit, seed, repeat, load, minutes }) => [
    date.slice(0, 16).replace("T", " "),
    `\`${command}\``,
    commit,
    seed,
    repeat,
    load.toFixed(1),
    minutes.toFixed(1),
  ]);
  return `<!-- Made by \`npm run compare\` from lab/results/comparison.json. Do not edit: \`npm run compare -- --page\` makes it anew. -->

# Comparison

What a lock costs on each engine, beside bare commands of the same client and beside other libraries, on real servers. Which engine
to take is another question, answered in [choosing.md](choosing.md).

${measured(circumstances)}${runs.length > 1 ? " That was the last of several runs, which are listed at the end." : ""} Peers: ${peerList.join(", ")}.

**How to read it.** All of it ran on one small machine, clients and servers together, over loopback; a network adds its round trips. Absolute times
vary from run to run: compare lines with each other. The contestants of a measure take turns, round by round, in an order drawn anew, and the
middle round counts. One server each (a quorum: five), with its data in memory, not on a disk: Redis without persistence; PostgreSQL, MariaDB,
ZooKeeper and etcd wait for their disk with each write, and what that costs on yours comes on top. ${company(results)}

## At a glance: Holdfast on each engine

${glance(results)}

Each column is explained below.

${SECTIONS.map((one) => sectionText(results, one)).join("\n\n")}

## The herd

ZooKeeper only. Many sessions wait for one lock, then each takes it and gives it back at once. In the queue each waiter watches only the one
before it. With a single node all watch the same one: each release wakes everybody, all try to create the node, one succeeds, and the
others watch again. Messages to and from the server, as it counts them:

${picture("herd", "Messages per hand-over: the queue and the single node")}

${herdText(results)}

## Who is who

${markdownTable(["who", "what it is"], LEGEND)}

## The runs

Each figure comes from the last run that measured it.

${markdownTable(head, runRows)}
`;
}
