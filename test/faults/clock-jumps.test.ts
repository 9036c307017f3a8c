import { afterAll, describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Hold } from "../../src/core/hold.js";
import type { Locks } from "../../src/locks.js";
import { movableClock } from "../servers/clock-shim.js";
import { startMariadb } from "../servers/mariadb.js";
import { startPostgres } from "../servers/postgres.js";
import { type Running, until } from "../servers/process.js";
import { startRedis } from "../servers/redis.js";
import { waiters } from "./rig.js";

/**
 * A server's calendar jumps by hours, forward and back, while a hold is renewed and another client waits. These stores keep
 * leases by that calendar: a jump forward ends them. Then the holder is told, and whoever comes next has a greater token.
 */

const HOUR_S = 3600;
const LEASE_MS = 2400;

type Start = (env: Readonly<Record<string, string>>) => Promise<{ readonly url: string; readonly running: Running }>;

const STORES: Readonly<Record<string, Start>> = {
  Redis: (env) => startRedis([], undefined, env),
  PostgreSQL: (env) => startPostgres([], env),
  MariaDB: (env) => startMariadb([], env),
};

const opened: Locks[] = [];
const running: Running[] = [];
afterAll(async () => {
  await Promise.all(opened.map((locks) => locks.close()));
  await Promise.all(running.map((one) => one.stop()));
});

/** What the holder knows of a jump: renewed twice since (the first may have been decided before it), or lost. */
async function knows(locks: Locks, hold: Hold): Promise<"renewed" | "lost"> {
  let renewed = 0;
  const stop = locks.on("renewed", ({ id }) => (renewed += Number(id === hold.id)));
  await until("it is renewed or lost", () => renewed > 1 || hold.state === "lost");
  stop();
  return hold.state === "lost" ? "lost" : "renewed";
}

describe.concurrent("a server's clock that jumps", () => {
  test.each(Object.entries(STORES))(
    "%s: a holder whose lease it ends is told, a jump back ends none, and tokens grow over all of them",
    { timeout: 120_000 },
    async (_store, start) => {
      const clock = movableClock();
      const server = await start(clock.env);
      running.push(server.running);
      const open = async (): Promise<Locks> => {
        const locks = await connect(server.url, { leaseMs: LEASE_MS });
        opened.push(locks);
        return locks;
      };
      const [a, b] = [await open(), await open()];
      const reasons: string[] = [];
      a.on("lost", ({ reason }) => reasons.push(reason));
      const tokens: number[] = [];
      let at = 0;
      for (const hours of [1, -1, 2, -2, 0]) {
        const hold = await a.mutex("jumps").acquire();
        tokens.push(hold.token);
        const next = b.mutex("jumps").acquire();
        await until("the other waits", async () => (await waiters(b, "jumps")) > 0 || hold.state === "lost");
        const forward = hours > at;
        at = hours;
        clock.moveTo(hours * HOUR_S);
        const before = reasons.length;
        const outcome = await knows(a, hold);
        if (outcome === "renewed") {
          hold.throwIfLost();
          await hold.release();
        } else {
          expect(() => hold.throwIfLost()).toThrow();
          // A jump back lets a lease last longer, never shorter: then only our own deadline can have come.
          if (!forward) expect(reasons.slice(before)).toEqual(["deadline"]);
        }
        const got = await next;
        tokens.push(got.token);
        await got.release();
        // A jump forward by hours leaves no lease of seconds.
        if (forward) expect(outcome).toBe("lost");
      }
      expect(tokens).toEqual([...new Set(tokens)].toSorted((one, two) => one - two));
    },
  );
});
