-- The whole store. Times are milliseconds of the machine's monotonic clock in the boot that `store.boot` names.
-- Tables with long rows keep their rowid: without it a row over a quarter of a page overflows, which writes three pages.

-- What the file knows about itself; one row.
CREATE TABLE store (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  boot TEXT NOT NULL,
  -- The highest token of any name that was forgotten: no name starts below it again.
  token_floor INTEGER NOT NULL,
  -- One for all cells, so that a cell which was removed does not start again at an old version.
  cell_version INTEGER NOT NULL,
  -- Who opens this file must speak this version of the layout, or a higher one. The version itself is the file's user_version.
  lowest_version INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, '', 0, 0, 0);

-- A name in use, or lately in use: one without claims is idle and is swept away.
CREATE TABLE name (
  name TEXT PRIMARY KEY,
  capacity INTEGER NOT NULL,
  taken INTEGER NOT NULL,
  holders INTEGER NOT NULL,
  waiters INTEGER NOT NULL,
  -- The last that was minted: a claim's that holds or waits, or one that such a claim keeps for itself.
  last_token INTEGER NOT NULL,
  -- No holder's lease ends before this: until then none has to be searched for.
  soonest_end REAL NOT NULL,
  -- The first waiter, and a time before which its lease does not end.
  front_token INTEGER NOT NULL,
  front_end REAL NOT NULL,
  -- The only claim, as JSON with the fields of a claim's row in camel case, when it has never had company; otherwise empty.
  -- One small row is then all that taking and giving back a lock writes.
  sole TEXT NOT NULL
) STRICT;

-- A claim that holds or waits. Its token is minted when it arrives: those that wait stand in order of their tokens, behind those that hold.
CREATE TABLE claim (
  name TEXT NOT NULL,
  id TEXT NOT NULL,
  units INTEGER NOT NULL,
  token INTEGER NOT NULL,
  holds INTEGER NOT NULL CHECK (holds IN (0, 1)),
  ends_at REAL NOT NULL,
  -- What was left when ends_at was written: all that is known of it after a restart of the machine.
  span_ms REAL NOT NULL,
  lease_ms REAL NOT NULL,
  exact INTEGER NOT NULL,
  -- Whose mailbox is told.
  client TEXT NOT NULL,
  -- The claim ends with this process ("namespace pid start"); empty: only the lease ends it.
  process TEXT NOT NULL,
  owner TEXT NOT NULL,
  data TEXT,
  -- When it was asked for; from the grant on, when that was. Null: not known, because the machine was restarted since.
  since REAL,
  PRIMARY KEY (name, id)
) STRICT;
-- The whole queue in order: its first holder, its first waiter and its end are one step away, however long it is.
CREATE INDEX claim_order ON claim (name, holds DESC, token);

-- A claim that was released: copies of it which arrive late are answered "gone".
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

-- A write to a cell that may be sent again: it answers as it did the first time.
CREATE TABLE operation (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('written', 'conflict')),
  version INTEGER NOT NULL,
  value TEXT,
  ends_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX operation_end ON operation (ends_at);
