-- The lock table. Written for a schema called holdfast; another name is put in its place when it is installed.
-- Times are the server's own, read inside the step that uses them. Text that may hold anything (owner, data, a cell's
-- value) is JSON, because text here cannot hold the character NUL.

-- What the store knows about itself; one row.
CREATE TABLE holdfast.store (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  -- The highest token of any name that was forgotten: no name starts below it again.
  token_floor bigint NOT NULL
);
INSERT INTO holdfast.store (token_floor) VALUES (0);

-- A claim that holds (token > 0) or waits (token = 0, in order of seq), unless it stands in its name's row.
CREATE TABLE holdfast.claim (
  name text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  units integer NOT NULL,
  token bigint NOT NULL,
  ends_at timestamptz NOT NULL,
  lease_ms bigint NOT NULL,
  at_least bigint NOT NULL,
  exact boolean NOT NULL,
  -- Whose claim it is: the channel that is told, if somebody listens there.
  client text COLLATE "C" NOT NULL,
  hears boolean NOT NULL,
  owner text NOT NULL,
  data text,
  PRIMARY KEY (name, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX claim_waiting ON holdfast.claim (name, seq) WHERE token = 0;
CREATE INDEX claim_holding ON holdfast.claim (name, token) WHERE token > 0;

-- A name in use, or lately in use: one without claims is idle and is swept away. Every step that changes a claim or leaves a
-- mark holds the lock on its name's row, and changes the row.
CREATE TABLE holdfast.name (
  name text COLLATE "C" PRIMARY KEY,
  capacity integer NOT NULL,
  taken bigint NOT NULL,
  holders integer NOT NULL,
  waiters integer NOT NULL,
  last_token bigint NOT NULL,
  -- No living token is below this.
  low_token bigint NOT NULL,
  last_seq bigint NOT NULL,
  -- No holder's lease ends before this: until then nobody has to look.
  soonest_end timestamptz NOT NULL,
  -- The first waiter, and a time before which its lease does not end.
  front_seq bigint NOT NULL,
  front_end timestamptz NOT NULL,
  -- Until then there may be marks under this name.
  marks_end timestamptz NOT NULL,
  touched_at timestamptz NOT NULL,
  -- The only claim, when it has never had company, and its id; otherwise null and empty. One small row is then all that
  -- taking and giving back a lock writes.
  sole_id text COLLATE "C" NOT NULL,
  sole holdfast.claim
-- Nothing that changes is in an index: with room on the page an update stays there.
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

-- A release that may have copies of its claim behind it: they answer "gone".
CREATE TABLE holdfast.mark (
  id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  ends_at timestamptz NOT NULL,
  PRIMARY KEY (id, name)
);
CREATE INDEX mark_end ON holdfast.mark (ends_at);

CREATE TABLE holdfast.cell (
  name text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  value text NOT NULL
);
-- One for all cells, so that a cell which was removed does not start again at an old version.
CREATE SEQUENCE holdfast.cell_version;

-- A write to a cell that may be sent again: it answers as it did the first time.
CREATE TABLE holdfast.operation (
  id text COLLATE "C" PRIMARY KEY,
  answer text NOT NULL,
  ends_at timestamptz NOT NULL
);
CREATE INDEX operation_end ON holdfast.operation (ends_at);
