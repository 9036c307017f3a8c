// Made by scripts/compile-sql.mjs from sql/*.sql and migrations/*.sql. Do not edit.

export type Scripts = {
  cellDelete: { in: [name: string]; out: null };
  cellPut: { in: [name: string, version: number, value: string]; out: null };
  cellRead: { in: [name: string]; out: { version: number; value: string } };
  cellVersionNext: { in: []; out: { version: number } };
  claimDelete: { in: [name: string, id: string]; out: null };
  claimDetach: { in: [name: string, id: string]; out: null };
  claimExtend: { in: [endsAt: number, spanMs: number, process: string, name: string, id: string]; out: null };
  claimFind: { in: [name: string, id: string, now: number]; out: { hasTombstone: number; id: string | null; units: number | null; token: number | null; holds: number | null; endsAt: number | null; leaseMs: number | null; exact: number | null; client: string | null; process: string | null } };
  claimGet: { in: [name: string, id: string]; out: { id: string; units: number; token: number; holds: number; endsAt: number; leaseMs: number; exact: number; client: string; process: string } };
  claimGrant: { in: [since: number, name: string, id: string]; out: null };
  claimLast: { in: [name: string]; out: { id: string; endsAt: number; client: string } };
  claimPut: { in: [name: string, id: string, units: number, token: number, holds: number, endsAt: number, spanMs: number, leaseMs: number, exact: number, client: string, process: string, owner: string, data: string | null, since: number | null]; out: null };
  claimTake: { in: [name: string, id: string]; out: { id: string; units: number; token: number; holds: number; endsAt: number; leaseMs: number; exact: number; client: string; process: string } };
  claimToken: { in: [token: number, name: string, id: string]; out: null };
  claimUnits: { in: [units: number, name: string, id: string]; out: null };
  claimsOf: { in: [name: string, now: number]; out: { id: string; units: number; token: number; holds: number; endsAt: number; owner: string; data: string | null; since: number | null } };
  floorRaise: { in: [token: number]; out: null };
  holderTokens: { in: [name: string]; out: { token: number } };
  holdersExpired: { in: [name: string, now: number]; out: { units: number } };
  holdersFront: { in: [name: string, most: number]; out: { id: string; token: number; client: string; process: string; owner: string } };
  holdersSoonest: { in: [name: string]; out: { endsAt: number | null } };
  load: { in: [name: string, id: string, now: number]; out: { boot: string; tokenFloor: number; hasTombstone: number; capacity: number | null; taken: number | null; holders: number | null; waiters: number | null; lastToken: number | null; soonestEnd: number | null; frontToken: number | null; frontEnd: number | null; sole: string | null } };
  namePut: { in: [name: string, capacity: number, taken: number, holders: number, waiters: number, lastToken: number, soonestEnd: number, frontToken: number, frontEnd: number, sole: string]; out: null };
  nameWaiters: { in: [name: string]; out: { waiters: number } };
  namesAfter: { in: [after: string, most: number]; out: { name: string } };
  namesDue: { in: [after: string, upTo: string, now: number]; out: { name: string } };
  namesIdle: { in: [after: string, upTo: string]; out: { lastToken: number } };
  operationGet: { in: [id: string, now: number]; out: { kind: string; version: number; value: string | null } };
  operationPut: { in: [id: string, kind: string, version: number, value: string | null, endsAt: number]; out: null };
  operationsEnded: { in: [now: number, most: number]; out: { id: string } };
  processDelete: { in: [name: string, process: string]; out: { holds: number; units: number } };
  rebaseClaims: { in: [now: number]; out: null };
  rebaseNames: { in: [now: number]; out: null };
  rebaseOperations: { in: [endsAt: number]; out: null };
  rebaseStore: { in: [boot: string]; out: null };
  rebaseTombstones: { in: [endsAt: number]; out: null };
  storeGet: { in: [now: number]; out: { boot: string; strange: number } };
  tombstonePut: { in: [id: string, name: string, endsAt: number]; out: null };
  tombstonesEnded: { in: [now: number, most: number]; out: { id: string } };
  waiterFirst: { in: [name: string]; out: { id: string; units: number; token: number; holds: number; endsAt: number; leaseMs: number; exact: number; client: string; process: string } };
  waitersTooLarge: { in: [name: string, capacity: number]; out: { id: string; client: string; endsAt: number } };
};

export const SQL: Record<keyof Scripts, string> = {
  cellDelete:
    `DELETE FROM cell WHERE name = ?`,
  cellPut:
    `INSERT INTO cell (name, version, value) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, value = excluded.value`,
  cellRead:
    `SELECT version, value FROM cell WHERE name = ?`,
  cellVersionNext:
    `UPDATE store SET cell_version = cell_version + 1 RETURNING cell_version AS version`,
  claimDelete:
    `DELETE FROM claim WHERE name = ? AND id = ?`,
  claimDetach:
    `UPDATE claim SET process = '' WHERE name = ? AND id = ?`,
  claimExtend:
    `UPDATE claim SET ends_at = ?, span_ms = ?, process = ? WHERE name = ? AND id = ?`,
  claimFind:
    `SELECT
  EXISTS (SELECT 1 FROM tombstone t WHERE t.id = ? AND t.name = ? AND t.ends_at > ?) AS hasTombstone,
  c.id, c.units, c.token, c.holds, c.ends_at AS endsAt, c.lease_ms AS leaseMs, c.exact, c.client, c.process
FROM store s
LEFT JOIN claim c ON c.name = ? AND c.id = ?`,
  claimGet:
    `SELECT id, units, token, holds, ends_at AS endsAt, lease_ms AS leaseMs, exact, client, process
FROM claim WHERE name = ? AND id = ?`,
  claimGrant:
    `UPDATE claim SET holds = 1, since = ? WHERE name = ? AND id = ?`,
  claimLast:
    `SELECT id, ends_at AS endsAt, client
FROM claim WHERE name = ? ORDER BY holds, token DESC LIMIT 1`,
  claimPut:
    `INSERT INTO claim (name, id, units, token, holds, ends_at, span_ms, lease_ms, exact, client, process, owner, data, since)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  claimTake:
    `DELETE FROM claim WHERE name = ? AND id = ?
RETURNING id, units, token, holds, ends_at AS endsAt, lease_ms AS leaseMs, exact, client, process`,
  claimToken:
    `UPDATE claim SET token = ? WHERE name = ? AND id = ?`,
  claimUnits:
    `UPDATE claim SET units = ? WHERE name = ? AND id = ?`,
  claimsOf:
    `SELECT id, units, token, holds, ends_at AS endsAt, owner, data, since
FROM claim WHERE name = ? AND ends_at > ? ORDER BY holds DESC, token`,
  floorRaise:
    `UPDATE store SET token_floor = max(token_floor, ?)`,
  holderTokens:
    `SELECT token FROM claim WHERE name = ? AND holds = 1 ORDER BY token`,
  holdersExpired:
    `DELETE FROM claim WHERE name = ? AND holds = 1 AND ends_at <= ? RETURNING units`,
  holdersFront:
    `SELECT id, token, client, process, owner
FROM claim WHERE name = ? AND holds = 1 ORDER BY token LIMIT ?`,
  holdersSoonest:
    `SELECT min(ends_at) AS endsAt FROM claim WHERE name = ? AND holds = 1`,
  load:
    `SELECT
  s.boot, s.token_floor AS tokenFloor,
  EXISTS (SELECT 1 FROM tombstone t WHERE t.id = ? AND t.name = ? AND t.ends_at > ?) AS hasTombstone,
  n.capacity, n.taken, n.holders, n.waiters, n.last_token AS lastToken,
  n.soonest_end AS soonestEnd, n.front_token AS frontToken, n.front_end AS frontEnd, n.sole
FROM store s
LEFT JOIN name n ON n.name = ?`,
  namePut:
    `INSERT INTO name (name, capacity, taken, holders, waiters, last_token, soonest_end, front_token, front_end, sole)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
  capacity = excluded.capacity, taken = excluded.taken, holders = excluded.holders, waiters = excluded.waiters,
  last_token = excluded.last_token, soonest_end = excluded.soonest_end,
  front_token = excluded.front_token, front_end = excluded.front_end, sole = excluded.sole`,
  nameWaiters:
    `SELECT waiters FROM name WHERE name = ?`,
  namesAfter:
    `SELECT name FROM name WHERE name > ? ORDER BY name LIMIT ?`,
  namesDue:
    `SELECT name FROM name WHERE name > ? AND name <= ? AND holders + waiters > 0 AND min(soonest_end, front_end) <= ?`,
  namesIdle:
    `DELETE FROM name WHERE name > ? AND name <= ? AND holders = 0 AND waiters = 0 RETURNING last_token AS lastToken`,
  operationGet:
    `SELECT kind, version, value FROM operation WHERE id = ? AND ends_at > ?`,
  operationPut:
    `INSERT INTO operation (id, kind, version, value, ends_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
  kind = excluded.kind, version = excluded.version, value = excluded.value, ends_at = excluded.ends_at`,
  operationsEnded:
    `DELETE FROM operation WHERE id IN (SELECT id FROM operation WHERE ends_at <= ? LIMIT ?)
RETURNING id`,
  processDelete:
    `DELETE FROM claim WHERE name = ? AND process = ? RETURNING holds, units`,
  rebaseClaims:
    `UPDATE claim SET ends_at = ? + span_ms, process = '', since = NULL`,
  rebaseNames:
    `UPDATE name SET
  soonest_end = ?, front_end = ?,
  sole = iif(sole = '', '', json_remove(json_set(sole, '$.endsAt', ? + json_extract(sole, '$.spanMs'), '$.process', ''), '$.since'))
WHERE holders + waiters > 0`,
  rebaseOperations:
    `UPDATE operation SET ends_at = ?`,
  rebaseStore:
    `UPDATE store SET boot = ?`,
  rebaseTombstones:
    `UPDATE tombstone SET ends_at = ?`,
  storeGet:
    `SELECT boot,
  EXISTS (SELECT 1 FROM claim WHERE ends_at > ? + span_ms + 1000)
  OR EXISTS (
    SELECT 1 FROM name
    WHERE sole <> '' AND json_extract(sole, '$.endsAt') > ? + json_extract(sole, '$.spanMs') + 1000
  ) AS strange
FROM store`,
  tombstonePut:
    `INSERT INTO tombstone (id, name, ends_at) VALUES (?, ?, ?)
ON CONFLICT (id, name) DO UPDATE SET ends_at = excluded.ends_at`,
  tombstonesEnded:
    `DELETE FROM tombstone WHERE (id, name) IN (SELECT id, name FROM tombstone WHERE ends_at <= ? LIMIT ?)
RETURNING id`,
  waiterFirst:
    `SELECT id, units, token, holds, ends_at AS endsAt, lease_ms AS leaseMs, exact, client, process
FROM claim WHERE name = ? AND holds = 0 ORDER BY token LIMIT 1`,
  waitersTooLarge:
    `DELETE FROM claim WHERE name = ? AND holds = 0 AND units > ? RETURNING id, client, ends_at AS endsAt`,
};

/** Which of a script's values each of its question marks stands for; null where each value stands once, in order. */
export const ORDER: Record<keyof Scripts, readonly number[] | null> = {
  cellDelete: null,
  cellPut: null,
  cellRead: null,
  cellVersionNext: null,
  claimDelete: null,
  claimDetach: null,
  claimExtend: null,
  claimFind: [1, 0, 2, 0, 1],
  claimGet: null,
  claimGrant: null,
  claimLast: null,
  claimPut: null,
  claimTake: null,
  claimToken: null,
  claimUnits: null,
  claimsOf: null,
  floorRaise: null,
  holderTokens: null,
  holdersExpired: null,
  holdersFront: null,
  holdersSoonest: null,
  load: [1, 0, 2, 0],
  namePut: null,
  nameWaiters: null,
  namesAfter: null,
  namesDue: null,
  namesIdle: null,
  operationGet: null,
  operationPut: null,
  operationsEnded: null,
  processDelete: null,
  rebaseClaims: null,
  rebaseNames: [0, 0, 0],
  rebaseOperations: null,
  rebaseStore: null,
  rebaseTombstones: null,
  storeGet: [0, 0],
  tombstonePut: null,
  tombstonesEnded: null,
  waiterFirst: null,
  waitersTooLarge: null,
};

/** From an array of columns to the row that a script's header names; null where there are none. */
export const ROWS: Record<keyof Scripts, ((r: readonly unknown[]) => Record<string, unknown>) | null> = {
  cellDelete: null,
  cellPut: null,
  cellRead: (r) => ({ version: r[0], value: r[1] }),
  cellVersionNext: (r) => ({ version: r[0] }),
  claimDelete: null,
  claimDetach: null,
  claimExtend: null,
  claimFind: (r) => ({ hasTombstone: r[0], id: r[1], units: r[2], token: r[3], holds: r[4], endsAt: r[5], leaseMs: r[6], exact: r[7], client: r[8], process: r[9] }),
  claimGet: (r) => ({ id: r[0], units: r[1], token: r[2], holds: r[3], endsAt: r[4], leaseMs: r[5], exact: r[6], client: r[7], process: r[8] }),
  claimGrant: null,
  claimLast: (r) => ({ id: r[0], endsAt: r[1], client: r[2] }),
  claimPut: null,
  claimTake: (r) => ({ id: r[0], units: r[1], token: r[2], holds: r[3], endsAt: r[4], leaseMs: r[5], exact: r[6], client: r[7], process: r[8] }),
  claimToken: null,
  claimUnits: null,
  claimsOf: (r) => ({ id: r[0], units: r[1], token: r[2], holds: r[3], endsAt: r[4], owner: r[5], data: r[6], since: r[7] }),
  floorRaise: null,
  holderTokens: (r) => ({ token: r[0] }),
  holdersExpired: (r) => ({ units: r[0] }),
  holdersFront: (r) => ({ id: r[0], token: r[1], client: r[2], process: r[3], owner: r[4] }),
  holdersSoonest: (r) => ({ endsAt: r[0] }),
  load: (r) => ({ boot: r[0], tokenFloor: r[1], hasTombstone: r[2], capacity: r[3], taken: r[4], holders: r[5], waiters: r[6], lastToken: r[7], soonestEnd: r[8], frontToken: r[9], frontEnd: r[10], sole: r[11] }),
  namePut: null,
  nameWaiters: (r) => ({ waiters: r[0] }),
  namesAfter: (r) => ({ name: r[0] }),
  namesDue: (r) => ({ name: r[0] }),
  namesIdle: (r) => ({ lastToken: r[0] }),
  operationGet: (r) => ({ kind: r[0], version: r[1], value: r[2] }),
  operationPut: null,
  operationsEnded: (r) => ({ id: r[0] }),
  processDelete: (r) => ({ holds: r[0], units: r[1] }),
  rebaseClaims: null,
  rebaseNames: null,
  rebaseOperations: null,
  rebaseStore: null,
  rebaseTombstones: null,
  storeGet: (r) => ({ boot: r[0], strange: r[1] }),
  tombstonePut: null,
  tombstonesEnded: (r) => ({ id: r[0] }),
  waiterFirst: (r) => ({ id: r[0], units: r[1], token: r[2], holds: r[3], endsAt: r[4], leaseMs: r[5], exact: r[6], client: r[7], process: r[8] }),
  waitersTooLarge: (r) => ({ id: r[0], client: r[1], endsAt: r[2] }),
};

export const MIGRATIONS: readonly string[] = [
  `CREATE TABLE store (
one INTEGER PRIMARY KEY CHECK (one = 1),
boot TEXT NOT NULL,
token_floor INTEGER NOT NULL,
cell_version INTEGER NOT NULL,
lowest_version INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, '', 0, 0, 0);
CREATE TABLE name (
name TEXT PRIMARY KEY,
capacity INTEGER NOT NULL,
taken INTEGER NOT NULL,
holders INTEGER NOT NULL,
waiters INTEGER NOT NULL,
last_token INTEGER NOT NULL,
soonest_end REAL NOT NULL,
front_token INTEGER NOT NULL,
front_end REAL NOT NULL,
sole TEXT NOT NULL
) STRICT;
CREATE TABLE claim (
name TEXT NOT NULL,
id TEXT NOT NULL,
units INTEGER NOT NULL,
token INTEGER NOT NULL,
holds INTEGER NOT NULL CHECK (holds IN (0, 1)),
ends_at REAL NOT NULL,
span_ms REAL NOT NULL,
lease_ms REAL NOT NULL,
exact INTEGER NOT NULL,
client TEXT NOT NULL,
process TEXT NOT NULL,
owner TEXT NOT NULL,
data TEXT,
since REAL,
PRIMARY KEY (name, id)
) STRICT;
CREATE INDEX claim_order ON claim (name, holds DESC, token);
CREATE TABLE tombstone (
id TEXT NOT NULL,
name TEXT NOT NULL,
ends_at REAL NOT NULL,
PRIMARY KEY (id, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstone_end ON tombstone (ends_at);
CREATE TABLE cell (
name TEXT PRIMARY KEY,
version INTEGER NOT NULL,
value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE operation (
id TEXT PRIMARY KEY,
kind TEXT NOT NULL CHECK (kind IN ('written', 'conflict')),
version INTEGER NOT NULL,
value TEXT,
ends_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX operation_end ON operation (ends_at);
`,
];
