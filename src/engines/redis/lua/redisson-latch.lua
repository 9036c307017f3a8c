-- Write the count of Redisson's RCountDownLatch over the count that was read, once per operation. It is open, at 0, where
-- there is no key.
--
-- KEYS[1]  the latch, at exactly its name
-- KEYS[2]  what this operation answered, in the same slot
-- ARGV[1]  the count that must be there
-- ARGV[2]  the count to write
-- ARGV[3]  the channel of the latch
-- ARGV[4]  how long the operation is remembered, in ms
-- ARGV[5]  1: on sharded channels too
--
-- returns written <count>
-- returns conflict <count>

-- include shared/wake.lua

local before = redis.call('GET', KEYS[2])
if before then return before end
local count = redis.call('GET', KEYS[1]) or '0'
local answer = 'conflict ' .. count
if count == ARGV[1] then
  answer = 'written ' .. ARGV[2]
  if ARGV[2] == '0' then
    redis.call('DEL', KEYS[1])
  else
    redis.call('SET', KEYS[1], ARGV[2])
  end
  -- Redisson tells of an open latch by 0, and of a new count by 1; of what is between nobody is told.
  if ARGV[2] == '0' then wake(ARGV[3], '0', ARGV[5]) end
  if count == '0' and ARGV[2] ~= '0' then wake(ARGV[3], '1', ARGV[5]) end
end
-- A conflict is remembered, too: a copy that comes late must not find what it expected after all.
redis.call('SET', KEYS[2], answer, 'PX', ARGV[4])
return answer
