-- Give back a mutex of Redisson's layout, if it is still this claim's, and wake whoever waits there.
--
-- KEYS[1]  the lock, at exactly its name
-- KEYS[2]  the tombstone of this id's release, in the same slot
-- ARGV[1]  the claim's id
-- ARGV[2]  how long to keep a tombstone, in ms; 0: leave none
-- ARGV[3]  the channel of the lock
-- ARGV[4]  what Redisson publishes there when a lock is free
-- ARGV[5]  1: on sharded channels too
--
-- returns released
-- returns gone
-- returns revoked: gone, and its tombstone was there before, so somebody released it

-- include shared/redisson.lua
-- include shared/wake.lua

local ours = ownField(KEYS[1], ARGV[1])
if ours then
  redis.call('DEL', KEYS[1])
  wake(ARGV[3], ARGV[4], ARGV[5])
end
local released = not ours and redis.call('EXISTS', KEYS[2]) == 1
if ARGV[2] ~= '0' then
  -- A server whose memory is full refuses a script that begins with SET, and not after this.
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
end
if ours then return 'released' end
return released and 'revoked' or 'gone'
