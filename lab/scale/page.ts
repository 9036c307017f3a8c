import { markdownTable } from "../lib/table.js";
import { translate } from "../lib/translate.js";
import { SCALE_PAGE } from "../zh-CN/scale.js";
import { growth, type Series } from "./pictures.js";
import type { Fleet, HeldRow, ScaleFigures, ScaleResults } from "./results.js";

const KINDS = { single: "one server", cluster: "Cluster of six" } as const;
type Kind = keyof typeof KINDS;
const kinds = Object.keys(KINDS) as Kind[];

const whole = (value: number): string => Math.round(value).toLocaleString("en");
const times = (value: number): string => `${value.toFixed(2)} ×`;
/** All columns but the first so many contain figures. */
const rightFrom = (first: number, head: readonly string[]): number[] => head.map((_, n) => n).filter((n) => n >= first);

function table(head: readonly string[], rows: readonly (readonly string[])[], words = 1): string {
  return markdownTable(head, rows, rightFrom(words, head));
}

/** The page and its pictures, by path. */
export function scalePagesOf(results: ScaleResults): Readonly<Record<string, string>> {
  const english = pageOf(results);
  return {
    "docs/scale.md": english,
    "docs/zh-CN/scale.md": translate(english, SCALE_PAGE),
    "docs/scale/renewal.svg": renewalPicture(results),
    "docs/scale/bytes.svg": bytesPicture(results),
  };
}

function renewalPicture(results: ScaleResults): string {
  const series = kinds.flatMap((kind, n): Series[] => {
    const rows = results[kind].held.filter(({ busy, idle }) => !busy && idle === 0);
    const points = (us: "clientUs" | "serverUs") => rows.map((row) => ({ x: row.size, y: row[us] }));
    return [
      { label: `client, ${KINDS[kind]}`, kind: `c${2 * n}`, points: points("clientUs") },
      { label: `server, ${KINDS[kind]}`, kind: `c${2 * n + 1}`, points: points("serverUs") },
    ];
  });
  return growth("Processor time of one renewal, by the number of holds of one client", "µs", series);
}

function bytesPicture({ single }: ScaleResults): string {
  const held = single.held.filter(({ busy, idle }) => !busy && idle === 0);
  const points = (rows: readonly { readonly size: number; readonly bytes: number }[]) =>
    rows.map(({ size, bytes }) => ({ x: size, y: bytes }));
  return growth("Memory of a name in one server, by the number of names", "bytes", [
    { label: "held", kind: "c0", points: points(held) },
    { label: "a plain key", kind: "c4", points: points(single.plain) },
    { label: "idle", kind: "c3", points: points(single.idle) },
  ]);
}

function pageOf(results: ScaleResults): string {
  return `# Scale

How the Redis engine grows with the number of holds, names and clients. Times are processor time, less what both sides use while
nothing is held; a machine with more cores changes how long things take, not what they use.

${kinds.map((kind) => aboutOf(kind, results[kind])).join("\n")}

## Many holds of one client

One client holds that many names, each renewed (lease 10 s), first by itself, then beside two processes that spin. "Others" is how many
cores all other processes of the machine used meanwhile. "Lost" counts holds that were lost until the end of the row; "not there" those that the server does not have as
their holder does.

${heldTable(results)}

![Processor time of a renewal, by the number of holds](scale/renewal.svg)

## Memory of a name

In the server, beside a plain key of the same length that keeps a value of 36 characters (a UUID). An idle name was taken and given back;
it keeps its last token for a day.

${bytesTable(results)}

![Memory of a name in the server](scale/bytes.svg)

## Claims beside many names

Take and give back a name that was never used, on empty servers and beside ${whole(results.single.idle.at(-1)?.size ?? 0)} idle names, in turn.

${claimsTable(results)}

## A fleet

${whole(results.single.fleet.clients)} clients in one process, each with a few holds: what the server does for them.

${fleetTable(results)}

**Ten thousand clients** were not run. By these figures, on one server:

${tenThousand(results.single.fleet)}

Redis runs its commands on one core. Holds of one client are renewed in one call, so fewer clients with more holds each cost less. A
longer lease is renewed less often: \`leaseMs: 30_000\` costs a third, and a holder that dies keeps the others waiting three times as long.
`;
}

function aboutOf(kind: Kind, { about }: ScaleFigures): string {
  const { date, command, commit, machine, node, redis, load, minutes } = about;
  const when = date.slice(0, 16).replace("T", " ");
  return `- ${KINDS[kind]}: made by \`${command}\` on ${when} UTC, at commit ${commit}, in ${minutes.toFixed(0)} minutes, on ${machine}; load ${load.toFixed(1)} at the start; Redis ${redis}, Node.js ${node}.`;
}

function heldTable(results: ScaleResults): string {
  const head = [
    "servers",
    "two spin",
    "others",
    "held",
    "idle beside",
    "client µs",
    "server µs",
    "a call",
    "slowest call",
    "lost",
    "not there",
  ];
  const row = (kind: Kind, one: HeldRow): readonly string[] => [
    KINDS[kind],
    one.busy ? "yes" : "no",
    one.otherCores.toFixed(1),
    whole(one.size),
    whole(one.idle),
    one.clientUs.toFixed(1),
    one.serverUs.toFixed(1),
    one.perCall.toFixed(one.perCall < 10 ? 1 : 0),
    `${whole(one.slowestMs)} ms`,
    whole(one.lost),
    whole(one.wrong),
  ];
  return table(
    head,
    kinds.flatMap((kind) => results[kind].held.map((one) => row(kind, one))),
    2,
  );
}

function bytesTable(results: ScaleResults): string {
  const rows = kinds.flatMap((kind) => {
    const { plain, held, idle } = results[kind];
    return plain.map(({ size, bytes }) => {
      const cells = [idle, held].flatMap((some) => {
        const found = some.find((row) => row.size === size);
        return found === undefined ? ["-", "-"] : [whole(found.bytes), times(found.bytes / bytes)];
      });
      const heap = held.find((row) => row.size === size)?.heapBytes;
      return [KINDS[kind], whole(size), whole(bytes), ...cells, heap === undefined ? "-" : whole(heap)];
    });
  });
  return table(["servers", "names", "plain key", "idle", "", "held", "", "a hold, in the client"], rows);
}

function claimsTable(results: ScaleResults): string {
  const rows = kinds.flatMap((kind) =>
    results[kind].claims.map(({ servers, pairUs, pairRatio, flightUs, flightRatio }) => [
      KINDS[kind],
      servers,
      `${whole(pairUs)} µs`,
      times(pairRatio),
      `${flightUs.toFixed(1)} µs`,
      times(flightRatio),
    ]),
  );
  return table(["servers", "", "pair", "to empty", "64 in flight, each", "to empty"], rows, 2);
}

function fleetTable(results: ScaleResults): string {
  const rows = kinds.flatMap((kind) =>
    results[kind].fleet.rows.map(({ each, perSecond, perCall, clientUs, serverUs, lost }) => [
      KINDS[kind],
      whole(each),
      whole(perSecond),
      perCall.toFixed(1),
      clientUs.toFixed(1),
      serverUs.toFixed(1),
      whole(lost),
    ]),
  );
  return table(["servers", "holds each", "renewals/s", "a call", "client µs", "server µs", "lost"], rows);
}

const CLIENTS = 10_000;
/** Three heartbeats a lease of ten seconds. */
const RENEWALS_PER_HOLD = 0.3;

function tenThousand({ connections, bytes, idleServerUs, rows }: Fleet): string {
  const base = `- ${whole(CLIENTS * connections)} connections (above Redis's default \`maxclients\` of 10,000), ${whole((CLIENTS * bytes) / 2 ** 20)} MiB for them, and ${((CLIENTS * idleServerUs) / 1e6).toFixed(2)} of a core while they hold nothing`;
  const loads = rows.map(({ each, serverUs }) => {
    const perSecond = CLIENTS * each * RENEWALS_PER_HOLD;
    const cores = (perSecond * serverUs) / 1e6;
    const verdict = cores < 0.7 ? "" : ": more than a server should be asked for; use a Cluster, or a longer lease";
    return `- with ${whole(each)} ${each === 1 ? "hold" : "holds"} each: ${whole(perSecond)} renewals a second, ${cores.toFixed(2)} cores${verdict}`;
  });
  return [base, ...loads].join("\n");
}
