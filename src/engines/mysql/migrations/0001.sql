-- The lock table. Written for a schema called holdfast; another name is put in its place when it is installed. Statements
-- end with a line of two slashes.
-- Times are microseconds of the server's clock since 1970, in UTC: no time zone and no summer time can bend them. Text is
-- bytes of UTF-8, so that no collation decides which names are equal. Owner, data and a cell's value are JSON.

-- What the store knows about itself; one row.
CREATE TABLE IF NOT EXISTS holdfast.store (
  one TINYINT NOT NULL PRIMARY KEY,
  -- The highest token of any name that was forgotten: no name starts below it again.
  token_floor BIGINT NOT NULL,
  -- One for all cells, so that a cell which was removed does not start again at an old version.
  cell_version BIGINT NOT NULL
) ENGINE = InnoDB
//
INSERT IGNORE INTO holdfast.store VALUES (1, 0, 0)
//
-- A name in use, or lately in use: one without claims is idle and is swept away. Every step that changes a claim or leaves a
-- mark holds the lock on its name's row.
CREATE TABLE IF NOT EXISTS holdfast.name (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  capacity INT NOT NULL,
  taken BIGINT NOT NULL,
  holders INT NOT NULL,
  waiters INT NOT NULL,
  last_token BIGINT NOT NULL,
  last_seq BIGINT NOT NULL,
  -- No holder's lease ends before this: until then nobody has to look.
  soonest_end BIGINT NOT NULL,
  -- The first waiter, and a time before which its lease does not end.
  front_seq BIGINT NOT NULL,
  front_end BIGINT NOT NULL,
  -- Until then there may be marks under this name.
  marks_end BIGINT NOT NULL,
  touched_at BIGINT NOT NULL,
  -- The only claim, when it has never had company; otherwise the id is empty. Its units are `taken`, its token is
  -- `last_token`, its lease ends at `soonest_end`. One row is then all that taking and giving back a lock writes.
  sole_id VARBINARY(64) NOT NULL DEFAULT '',
  sole_lease_ms BIGINT NOT NULL DEFAULT 0,
  sole_exact TINYINT NOT NULL DEFAULT 0,
  sole_client VARBINARY(64) NOT NULL DEFAULT '',
  sole_hears TINYINT NOT NULL DEFAULT 0,
  sole_owner BLOB,
  sole_data MEDIUMBLOB
) ENGINE = InnoDB
//
-- A claim that holds (token > 0) or waits (token = 0, in order of seq), unless it stands in its name's row.
CREATE TABLE IF NOT EXISTS holdfast.claim (
  name VARBINARY(512) NOT NULL,
  id VARBINARY(64) NOT NULL,
  seq BIGINT NOT NULL,
  units INT NOT NULL,
  token BIGINT NOT NULL,
  ends_at BIGINT NOT NULL,
  lease_ms BIGINT NOT NULL,
  at_least BIGINT NOT NULL,
  exact TINYINT NOT NULL,
  -- Whose claim it is, and whether that client gets mail.
  client VARBINARY(64) NOT NULL,
  hears TINYINT NOT NULL,
  owner BLOB NOT NULL,
  data MEDIUMBLOB,
  PRIMARY KEY (name, id),
  KEY claim_order (name, token, seq)
) ENGINE = InnoDB
//
-- A release that may have copies of its claim behind it: they answer "gone".
CREATE TABLE IF NOT EXISTS holdfast.mark (
  id VARBINARY(64) NOT NULL,
  name VARBINARY(512) NOT NULL,
  ends_at BIGINT NOT NULL,
  PRIMARY KEY (id, name),
  KEY mark_end (ends_at)
) ENGINE = InnoDB
//
-- What a client is told: it reads this when it is woken, and takes it away.
CREATE TABLE IF NOT EXISTS holdfast.mail (
  seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  client VARBINARY(64) NOT NULL,
  event BLOB NOT NULL,
  ends_at BIGINT NOT NULL,
  KEY mail_client (client, seq)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS holdfast.cell (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  value MEDIUMBLOB NOT NULL
) ENGINE = InnoDB
//
-- A write to a cell that may be sent again: it answers as it did the first time.
CREATE TABLE IF NOT EXISTS holdfast.operation (
  id VARBINARY(512) NOT NULL PRIMARY KEY,
  answer MEDIUMBLOB NOT NULL,
  ends_at BIGINT NOT NULL,
  KEY operation_end (ends_at)
) ENGINE = InnoDB
//
