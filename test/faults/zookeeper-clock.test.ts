import { expect, onTestFinished, test } from "vitest";
import { SystemClock } from "../../src/core/clock.js";
import { Connection, dial } from "../../src/engines/zookeeper/drivers/wire/connection.js";
import { type Acl, create, type Request } from "../../src/engines/zookeeper/drivers/wire/protocol.js";
import { movableClock } from "../servers/clock-shim.js";
import { until } from "../servers/process.js";
import { startEnsemble, untilLeader } from "../servers/zookeeper.js";
import { locksOn, urlOf } from "./zookeeper-rig.js";

const HOUR_S = 3600;
const EVERYBODY: Acl = { perms: 31, scheme: "world", id: "anyone" };
const EXISTS = 3;

/** What time it is there, by the calendar: when a new node was made. */
async function calendarOf(port: number): Promise<number> {
  const greeting = { lastZxid: 0n, timeoutMs: 4000, sessionId: 0n, password: Buffer.alloc(16) };
  const limits = { greetingMs: 10_000, answerMs: 10_000 };
  const made = (reader: { long(): bigint }): number => Number([reader.long(), reader.long(), reader.long()][2]);
  return new Promise((resolve, reject) => {
    const host = { host: "127.0.0.1", port };
    const connection = new Connection(host, dial(host, undefined), greeting, limits, new SystemClock(), {
      greeted: () => {
        const asking = connection.ask(create("/now-", Buffer.alloc(0), "ephemeral-sequential", [EVERYBODY]));
        const look = ({ path }: { path: string }): Promise<number> => {
          const exists: Request<number> = {
            doing: "looking at the clock",
            type: EXISTS,
            write: (packet) => void packet.text(path).flag(false),
            read: made,
          };
          return connection.ask(exists);
        };
        asking
          .then(look)
          .then(resolve, reject)
          .finally(() => connection.leave(new Error("done")));
      },
      changed: () => {},
      closed: reject,
    });
  });
}

test("calendars that jump an hour, the leader's too, end no session: its time is counted by a clock that cannot be set", {
  timeout: 120_000,
}, async () => {
  const clock = movableClock();
  const ensemble = await startEnsemble({ env: clock.env });
  onTestFinished(() => ensemble.stop());
  await untilLeader(ensemble);
  const locks = await locksOn(urlOf(...ensemble.ports), { sessionTimeoutMs: 4000, leaseMs: 3000 });
  const told: string[] = [];
  for (const event of ["lost", "jeopardy", "warning"] as const) locks.on(event, () => told.push(event));
  let renewed = 0;
  locks.on("renewed", () => (renewed += 1));
  const hold = await locks.mutex("over jumps").acquire();
  for (const seconds of [HOUR_S, -HOUR_S]) {
    clock.moveTo(seconds);
    const [port = 0] = ensemble.ports;
    const aheadMs = (await calendarOf(port)) - Date.now();
    expect(Math.sign(aheadMs)).toBe(Math.sign(seconds));
    expect(Math.abs(aheadMs)).toBeGreaterThan((HOUR_S * 1000) / 2);
    // Renewed every second: more than two sessions.
    const before = renewed;
    await until("it lives on", () => renewed >= before + 9 || told.includes("lost"));
    hold.throwIfLost();
  }
  expect(told).not.toContain("lost");
  await hold.release();
});
