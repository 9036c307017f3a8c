-- Compare and delete: give back a mutex of the plain layout, if it is still this claim's.
--
-- KEYS[1]  the lock, at exactly its name
-- KEYS[2]  the tombstone of this id's release, in the same slot
-- ARGV[1]  the claim's id
-- ARGV[2]  how long to keep a tombstone, in ms; 0: leave none
-- ARGV[3]  the channel on which waiters are woken
-- ARGV[4]  the name, as it is published there
--
-- returns released
-- returns gone
-- returns revoked: gone, and its tombstone was there before, so somebody released it

local value = redis.call('GET', KEYS[1])
local ours = value and string.match(value, '^(.*):%d+$') == ARGV[1]
if ours then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[3], ARGV[4])
end
local released = not ours and redis.call('EXISTS', KEYS[2]) == 1
if ARGV[2] ~= '0' then
  -- A server whose memory is full refuses a script that begins with SET, and not after this.
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
end
if ours then return 'released' end
return released and 'revoked' or 'gone'
