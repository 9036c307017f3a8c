-- From now on times are of this boot.
-- in: boot text
-- out: nothing
UPDATE store SET boot = :boot
