import assert from "node:assert/strict";
import type { Redis } from "ioredis";

/** A claim as a name's key tells of it. Times are in microseconds. */
type StoredClaim = {
  readonly id: string;
  readonly units: number;
  readonly ends: number;
  readonly token: number;
  readonly leaseMs: number;
  readonly request: string;
};

/** What a name's key says, whichever of its forms it has (lua/shared/name.lua). */
export type StoredName = {
  readonly capacity: number | null;
  readonly token: number;
  readonly holders: readonly StoredClaim[];
  readonly waiters: readonly StoredClaim[];
  /** Ids that were released, and until when late copies of them are gone; only those whose time is not over. */
  readonly tombstones: Readonly<Record<string, number>>;
  /** There are tombstones, and the time of all of them is over. */
  readonly unclear: boolean;
};

type Hash = Readonly<Record<string, string>>;

const ALONE = /^(\d+) (\d+) (\d+) (\d+)\n([^]*)$/;
const IDLE = /^(\d+)$/;
const MANY = /^many (\d+) (\d+) (\d+) (\d+) (\d+|inf) (\d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)$/;

/** Reads a name and checks what must hold of it at any moment. Null: there is no such key. */
export async function storedName(
  redis: Redis,
  key: string,
  nowUs: number,
  idleMs: number,
  livesMaxMs: number,
): Promise<StoredName | null> {
  const [type, endsAt] = await Promise.all([redis.type(key), redis.zscore("virtual:ends", key)]);
  if (type === "none") return null;
  const hash = type === "string" ? { one: (await redis.get(key)) ?? "" } : await redis.hgetall(key);
  try {
    const isSmall = !hash.one?.startsWith("many ") && hash.tombstonesEnd === undefined;
    assert.ok(type === "hash" || isSmall, "a string only while it is idle or held alone, without tombstones");
    if (IDLE.test(hash.one ?? "") && isSmall)
      assert.ok((hash.one ?? "").length >= 16, "an idle name is known by its length");
    assert.ok(Number(endsAt) - nowUs / 1000 <= livesMaxMs, `the key ends in time, not at ${endsAt}`);
    return checked(hash, endsAt === null ? Number.NaN : Number(endsAt), nowUs, idleMs);
  } catch (error) {
    throw new Error(`the stored state is not sound: ${(error as Error).message}\n${JSON.stringify(hash, null, 1)}`, {
      cause: error,
    });
  }
}

function checked(hash: Hash, keyEndsMs: number, nowUs: number, idleMs: number): StoredName {
  assert.ok(keyEndsMs >= 0, "the key ends some day");
  const tombstones = tombstonesOf(hash, nowUs);
  // It is there through all of its last millisecond.
  const outlives = (us: number, what: string): void =>
    assert.ok((keyEndsMs + 1) * 1000 > us, `the key outlives ${what} (${us / 1000} ms), but ends at ${keyEndsMs} ms`);
  for (const until of Object.values(tombstones)) outlives(until, "its tombstones");
  const { one = "0" } = hash;
  const many = MANY.exec(one);
  const claims = many === null ? alone(one) : list(hash, many);
  const held = Number(many?.[4] ?? claims[0]?.token);
  const [holders, waiters] = [claims.filter(({ token }) => token <= held), claims.filter(({ token }) => token > held)];
  const known = new Set(claims.map(({ id }) => id));
  for (const field of Object.keys(hash)) {
    const [, kind, id = ""] = /^([cs<>]):([^]*)$/.exec(field) ?? [];
    if (kind !== undefined) assert.ok(known.has(id), `nothing is left of a claim that is gone (${field})`);
    else assert.match(field, /^(one|by|tombstone1|tombstone2|tombstonesEnd|[tx]:[^]*)$/);
  }
  if (many === null) assert.ok(!("by" in hash), "only a name that several claims hold or wait for says whose it is");
  for (const { ends } of claims) outlives(ends + idleMs * 1000, "its claims");
  const token = Number(many?.[3] ?? ALONE.exec(one)?.[4] ?? IDLE.exec(one)?.[1]);
  assert.ok(Number.isSafeInteger(token), `the last token is a number (${one})`);
  if (many !== null) checkMany(hash, many, holders, waiters);
  claims.forEach((claim, n) => {
    const before = claims[n - 1]?.token ?? 0;
    assert.ok(claim.token > 0 && claim.token <= token, "every claim has a token, not above the last one");
    // Those of holders may be equal: a renewal raises them.
    assert.ok(
      claim.token <= held ? claim.token >= before : claim.token > before,
      "claims stand in the order of their tokens",
    );
  });
  const capacity = many === null ? capacityOf(holders[0]) : Number(many[1]);
  const unclear = hash.tombstonesEnd !== undefined && Number(hash.tombstonesEnd) <= nowUs;
  return { capacity, token, holders, waiters, tombstones, unclear };
}

function checkMany(
  hash: Hash,
  many: RegExpExecArray,
  holders: readonly StoredClaim[],
  waiters: readonly StoredClaim[],
): void {
  const [, , taken, , , soonest, lives] = many;
  assert.equal(many[8], waiters[0]?.id ?? "", "the first that waits");
  assert.ok(holders.length + waiters.length > 0, "an idle name says so");
  assert.equal(Number(taken), sum(holders), "what is taken is what the holders have");
  const soonestUs = soonest === "inf" ? Number.POSITIVE_INFINITY : Number(soonest);
  for (const { ends } of holders) assert.ok(soonestUs <= ends, "no holder's lease ends before the soonest");
  for (const { ends } of holders) assert.ok(ends <= Number(lives), "no holder's lease ends after what the name lives");
  for (const { ends, leaseMs } of waiters)
    assert.ok(ends + leaseMs * 1000 <= Number(lives), "the name lives until the lease that a waiter may get is over");
  const [first] = holders;
  if (first !== undefined && hash.by?.startsWith(`${first.id}\n`)) {
    assert.equal(hash.by, first.request.slice(first.request.indexOf("\n") + 1), "whose the name is");
  }
}

const sum = (claims: readonly StoredClaim[]): number => claims.reduce((all, { units }) => all + units, 0);

function capacityOf(claim: StoredClaim | undefined): number | null {
  return claim === undefined ? null : Number(claim.request.split(" ")[3]);
}

function alone(one: string): readonly StoredClaim[] {
  const [, second, us, leaseMs, last, request = ""] = ALONE.exec(one) ?? [];
  if (second === undefined) return [];
  const heartbeat = Number(second) * 1_000_000 + Number(us);
  const ends = heartbeat + Number(leaseMs) * 1000;
  const [, suggestion = "", , , units] = request.split(" ");
  const token = Number(last) - Number(suggestion.split("+")[1] ?? 0);
  const [, written] = /^0(\d+)/.exec(suggestion) ?? [];
  const since = written === "0" ? token : Number(written ?? heartbeat);
  assert.ok(since <= token, "the time of its grant, which no token is below");
  // As it stands in a hash.
  const asThere = request.replace(/^(\d+) \d+/, `$1 0${since}`);
  return [claimOf(asThere, request.split("\n")[1] ?? "", Number(units), ends, token)];
}

function claimOf(request: string, id: string, units: number, ends: number, token: number): StoredClaim {
  assert.equal(request.split("\n")[1], id, "a claim's request has its id");
  assert.match(request, /^\d+ 0\d+/, "and since when it waits or holds");
  return { id, units, ends, token, leaseMs: Number(request.split(" ")[0]), request };
}

function list(hash: Hash, many: RegExpExecArray): readonly StoredClaim[] {
  const [first = "", , last = ""] = many.slice(7);
  assert.equal(first === "", last === "", "the list has both ends or none");
  const claims: StoredClaim[] = [];
  for (let id = first, before = ""; id !== ""; before = id, id = id === last ? "" : (hash[`>:${id}`] ?? "missing")) {
    const [units, ends, token] = (hash[`s:${id}`] ?? "").split(" ").map(Number);
    assert.ok(units !== undefined && ends !== undefined && token !== undefined, `${id} stands in the list`);
    if (before !== "") assert.equal(hash[`<:${id}`], before, "the list reads the same from its end");
    claims.push(claimOf(hash[`c:${id}`] ?? "", id, units, ends, token));
    assert.ok(claims.length < 1000, "the list ends");
  }
  return claims;
}

function tombstonesOf(hash: Hash, nowUs: number): Record<string, number> {
  const tombstones: Record<string, number> = {};
  const listed = new Set<string>();
  for (let n = Number(hash.tombstone1 ?? 1); n <= Number(hash.tombstone2 ?? 0); n += 1) {
    const id = hash[`x:${n}`];
    assert.ok(id !== undefined, `a tombstone was left at ${n}`);
    listed.add(id);
  }
  for (const field of Object.keys(hash)) {
    if (field.startsWith("x:")) {
      const n = Number(field.slice(2));
      assert.ok(n >= Number(hash.tombstone1) && n <= Number(hash.tombstone2), `${field} is counted`);
    }
    if (!field.startsWith("t:")) continue;
    const id = field.slice(2);
    const until = Number(hash[field]);
    assert.ok(listed.has(id), `the tombstone of ${id} will be cleared away`);
    assert.ok(until <= Number(hash.tombstonesEnd), "tombstones are needed as long as the last of them counts");
    if (until > nowUs) tombstones[id] = until;
  }
  return tombstones;
}
