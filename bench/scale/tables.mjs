// The growth curves as tables.
import { table } from "../lib/measure.mjs";

const whole = (value) => Math.round(value).toLocaleString("en");

export function printAll(kind, { plain, held, idle, claims, fleet }) {
  const plainBytes = (size) => plain.find((row) => row.size === size).bytes;
  const bytes = ({ size, bytes }) => [whole(bytes), `${(bytes / plainBytes(size)).toFixed(2)} ×`];
  table(
    `${kind}: one client renews its holds (lease 10 s), all of them taken by one client; CPU less what is used when nothing is held`,
    [
      "held",
      "idle beside",
      "two spin",
      "others' cores",
      "taken in s",
      "renewals/s",
      "a call",
      "client µs",
      "server µs",
      "slowest call ms",
      "loop delay ms",
      "unanswered",
      "lost",
      "not on server",
    ],
    held.map((row) => [
      whole(row.size),
      whole(row.idle),
      row.busy ? "yes" : "no",
      row.otherCores.toFixed(2),
      (row.takenMs / 1000).toFixed(1),
      whole(row.perSecond),
      row.perCall.toFixed(row.perCall < 10 ? 1 : 0),
      row.clientUs.toFixed(1),
      row.serverUs.toFixed(1),
      whole(row.slowestMs),
      whole(row.longestDelayMs),
      row.unanswered,
      row.lost,
      row.wrong,
    ]),
  );
  table(
    `${kind}: bytes per name in the server, beside a plain key as long with a value of 36 characters`,
    ["names", "plain key", "held", "to plain", "idle", "to plain", "idle names missing", "heap per hold in the client"],
    plain.map(({ size, bytes: ofPlain }) => {
      const [ofHeld, ofIdle] = [held, idle].map((rows) => rows.find((row) => row.size === size));
      return [
        whole(size),
        whole(ofPlain),
        ...(ofHeld ? bytes(ofHeld) : ["-", "-"]),
        ...(ofIdle ? [...bytes(ofIdle), ofIdle.missing] : ["-", "-", "-"]),
        ofHeld ? whole(ofHeld.heapBytes) : "-",
      ];
    }),
  );
  table(
    `${kind}: take and give back a new name, on an empty server and beside ${whole(idle.at(-1).size)} idle names`,
    ["", "pair, one after the other, µs", "to empty", "64 in flight, µs", "to empty"],
    claims.map((row) => [
      row.servers,
      whole(row.pairUs),
      `${row.pairRatio.toFixed(2)} ×`,
      row.flightUs.toFixed(1),
      `${row.flightRatio.toFixed(2)} ×`,
    ]),
  );
  table(
    `${kind}: ${fleet.clients} clients in one process; a client takes ${fleet.connections.toFixed(1)} connections, ${whole(fleet.bytes)} bytes and, while it holds nothing, ${fleet.idleServerUs.toFixed(1)} µs/s of the server`,
    ["holds of each client", "renewals/s", "a call", "client µs", "server µs", "lost"],
    fleet.rows.map((row) => [
      row.each,
      whole(row.perSecond),
      row.perCall.toFixed(row.perCall < 10 ? 1 : 0),
      row.clientUs.toFixed(1),
      row.serverUs.toFixed(1),
      row.lost,
    ]),
  );
}
