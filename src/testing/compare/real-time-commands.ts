import type { AsyncCommand, CommandsContraints } from "fast-check";
import type { ClaimRequest } from "../../core/engine.js";
import type { RealTimePair } from "./real-time-pair.js";

type FastCheck = typeof import("fast-check");
type Command = AsyncCommand<object, RealTimePair>;

/**
 * Commands for a store that keeps real time: leases either last the whole run or are waited for, so that a slow machine
 * changes nothing.
 */
export function realTimeCommands(fc: FastCheck, constraints: CommandsContraints) {
  const index = fc.nat(1000);
  const client = fc.nat(1);
  return fc.commands(
    [
      fc
        .tuple(client, fc.nat(2), fc.nat(3), fc.boolean(), fc.boolean(), fc.boolean())
        .map((parts) => claimOnce(...parts)),
      fc.tuple(client, index).map((parts) => claimAgain(...parts)),
      fc.tuple(client, index, fc.boolean()).map((parts) => releaseOnce(...parts)),
      fc.tuple(client, fc.array(index, { maxLength: 5 })).map((parts) => renewAll(...parts)),
      fc.tuple(client, index, fc.constantFrom(30_000, 90_000)).map((parts) => renewFor(...parts)),
      fc.tuple(client, index, fc.nat(3)).map((parts) => resize(...parts)),
      fc.tuple(client, fc.integer({ min: 1, max: 4 })).map((parts) => setCapacity(...parts)),
      fc.tuple(client, fc.nat(2), fc.boolean()).map((parts) => claimAndAbandon(...parts)),
      fc.tuple(client, fc.nat(2)).map((parts) => inspect(...parts)),
    ],
    constraints,
  );
}

function command(text: string, run: (pair: RealTimePair) => Promise<unknown>): Command {
  const runAndRenew = async (pair: RealTimePair): Promise<void> => {
    await run(pair);
    await pair.keepAlive();
  };
  return { check: () => true, run: (_model, pair) => runAndRenew(pair), toString: () => text };
}

const claimOnce = (
  client: number,
  kind: number,
  units: number,
  wait: boolean,
  exact: boolean,
  chosen: boolean,
): Command => {
  const text = `claim(client ${client}, kind ${kind}, units ${units}, wait ${wait}, exact ${exact}, chosen ${chosen})`;
  const more: Partial<ClaimRequest> = { wait, ...(exact ? { exact } : {}), ...(chosen ? { chosen } : {}) };
  return command(text, (pair) =>
    pair.call(client, { verb: "claim", request: pair.newClaim(client, kind, units, more) }),
  );
};

const claimAgain = (client: number, pick: number): Command =>
  command(`claim again(client ${client}, ${pick})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim === undefined) return;
    await pair.call(claim.chosen ? client : pair.clientOf(claim, client), { verb: "claim", request: claim });
  });

const releaseOnce = (client: number, pick: number, sentOnce: boolean): Command =>
  command(`release(client ${client}, ${pick}, sent once ${sentOnce})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim === undefined) return;
    const { name, id } = claim;
    await pair.call(client, { verb: "release", request: { name, id, tombstone: sentOnce ? "never" : "always" } });
    if (sentOnce) pair.forget(claim);
  });

const renewAll = (client: number, picks: readonly number[]): Command =>
  command(`renew(client ${client}, ${picks.join(" ")})`, (pair) => pair.renew(client, picks));

const renewFor = (client: number, pick: number, leaseMs: number): Command =>
  command(`renew for(client ${client}, ${pick}, ${leaseMs} ms)`, (pair) => pair.renew(client, [pick], leaseMs));

const resize = (client: number, pick: number, units: number): Command =>
  command(`resize(client ${client}, ${pick}, to ${units + 1})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim === undefined) return;
    const { name, id } = claim;
    const by = pair.sessionBound ? pair.clientOf(claim, client) : client;
    await pair.call(by, { verb: "resize", ref: { name, id }, units: units + 1 });
  });

const setCapacity = (client: number, capacity: number): Command =>
  command(`set capacity(client ${client}, ${capacity})`, (pair) => pair.setCapacity(client, capacity));

const claimAndAbandon = (client: number, kind: number, wait: boolean): Command =>
  command(`claim and abandon(client ${client}, kind ${kind}, wait ${wait})`, (pair) =>
    pair.abandon(client, kind, wait),
  );

const inspect = (client: number, kind: number): Command =>
  command(`inspect(client ${client}, kind ${kind})`, (pair) =>
    pair.call(client, { verb: "inspect", name: pair.name(kind) }),
  );
