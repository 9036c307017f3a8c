import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { LONG, PLACES } from "../servers/places.js";
import { pause, quickFolder, until } from "../servers/process.js";
import { fleet, Member } from "./fleet.js";

/** Eight processes add to one number under one lock, while those inside are killed and stopped: nothing is lost, nothing is stale. */

const PROCESSES = 8;
const TURNS = LONG ? 400 : 24;
const LEASE_MS = 700;
/** The long run takes all of them. */
const STORES = LONG ? Object.keys(PLACES) : ["sqlite", "redis"];

type Line = { readonly event?: string; readonly token?: number; readonly accepted?: boolean };
type Inside = { readonly member: Member; readonly token: number };
type Counted = { readonly value: number; readonly increments: readonly { token: number; writer: number }[] };

const said = (members: readonly Member[], event: string): (Inside & { accepted?: boolean })[] =>
  members.flatMap((member) =>
    (member.lines as Line[]).flatMap((line) =>
      line.event === event ? [{ member, token: line.token ?? 0, accepted: line.accepted ?? false }] : [],
    ),
  );

const within = (ms: number, holds: () => boolean): Promise<boolean> =>
  until("it holds", holds, ms).then(
    () => true,
    () => false,
  );

describe.each(STORES)("%s", (kind) => {
  test("a shared counter is the number of accepted increments, whoever is killed or stopped", {
    timeout: LONG ? 1_200_000 : 120_000,
  }, async () => {
    const place = await (PLACES[kind] ?? expect.fail())();
    onTestFinished(() => place.stop());
    const folder = mkdtempSync(join(quickFolder(), "holdfast-counter-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const resource = join(folder, "counter.db");
    const members = await fleet(PROCESSES, place);
    const enter = (member: Member): void =>
      void member.begin("count", { name: "counter", leaseMs: LEASE_MS, resource });
    members.forEach(enter);

    const chance = new SeededChance(19);
    const outcomes = { went: 0, killed: new Set<number>(), stopped: new Set<number>() };
    const handled = new Set<number>();
    const find = (): Inside | undefined => said(members, "inside").find(({ token }) => !handled.has(token));
    const next = async (): Promise<Inside> => {
      await until("another is inside", () => find() !== undefined, 100_000);
      const found = find() ?? expect.fail();
      handled.add(found.token);
      return found;
    };
    let inside = await next();
    while (handled.size < TURNS) {
      const { member, token } = inside;
      // At least one of each kind, also in a short run.
      const drawn = handled.size === 2 ? 0 : handled.size === 4 ? 0.2 : chance.fraction();
      if (drawn < 0.05) {
        outcomes.killed.add(token);
        member.signal("SIGKILL");
        const another = await new Member(place).ready();
        members.push(another);
        enter(another);
        inside = await next();
      } else if (drawn < 0.3) {
        // It stands still until another has read the number; then it goes on and writes what it thinks it is.
        outcomes.stopped.add(token);
        member.signal("SIGSTOP");
        // On SQLite nobody can write while one is stopped in the very middle of a transaction: then it is stopped anew.
        while (!(await within(20 * LEASE_MS, () => find() !== undefined))) {
          member.signal("SIGCONT");
          await pause(LEASE_MS / 10);
          member.signal("SIGSTOP");
        }
        inside = await next();
        member.signal("SIGCONT");
        member.begin("goOn", {});
        await until("the one that was stopped has written", () =>
          said(members, "wrote").some((one) => one.token === token),
        );
      } else {
        outcomes.went += 1;
        member.begin("goOn", {});
        inside = await next();
      }
    }
    inside.member.begin("goOn", {});
    await until("the last one has written", () => said(members, "wrote").some(({ token }) => token === inside.token));

    const [reader] = await fleet(1, place);
    const { value, increments } = (await reader?.ask<Counted>("counted", { resource })) ?? expect.fail();
    const wrote = said(members, "wrote");
    console.log(
      `${kind}: ${handled.size} turns, ${outcomes.killed.size} kills, ${outcomes.stopped.size} stops, ` +
        `${increments.length} increments, ${wrote.filter(({ accepted }) => !accepted).length} refused`,
    );
    expect(value, "no increment is lost").toBe(increments.length);
    const tokens = increments.map(({ token }) => token);
    expect(tokens, "tokens grow, one increment each").toEqual([...new Set(tokens)].toSorted((one, two) => one - two));
    expect(tokens.filter((token) => outcomes.stopped.has(token) || outcomes.killed.has(token))).toEqual([]);
    const writers = new Map(said(members, "inside").map(({ token, member }) => [token, member.pid]));
    expect(writers.size, "each token is one process's").toBe(said(members, "inside").length);
    for (const { token, writer } of increments) expect(writer).toBe(writers.get(token));
    for (const { token, accepted } of wrote) expect(tokens.includes(token)).toBe(accepted);
    expect(increments.length).toBeGreaterThan(outcomes.went / 2);
  });
});
