-- Take a mutex in the layout of Redisson's RLock or RFencedLock.
--
-- KEYS[1]  the lock, at exactly its name
-- KEYS[2]  the tombstone of this id's release, in the same slot
-- KEYS[3]  the last token of the name, in which RFencedLock counts; for RLock there is none
-- ARGV[1]  the claim's id
-- ARGV[2]  the lease in ms
-- ARGV[3]  mint no token below this
--
-- returns granted <left ms> <token> <floor>
-- returns busy
-- returns gone

-- include shared/redisson.lua

if redis.call('EXISTS', KEYS[2]) == 1 then return 'gone' end
if redis.call('EXISTS', KEYS[1]) == 1 then
  -- Ours already, when the answer was lost and it is asked again.
  local field, token = ownField(KEYS[1], ARGV[1])
  if not field then return 'busy' end
  return 'granted ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. ' ' .. token .. ' ' .. token
end
local time = redis.call('TIME')
local last = KEYS[3] and redis.call('GET', KEYS[3]) or '0'
-- Lua prints large numbers as 1.79e+15.
local token = string.format('%.0f', math.max(time[1] * 1000000 + time[2], tonumber(ARGV[3]), tonumber(last) + 1))
if KEYS[3] then redis.call('SET', KEYS[3], token) end
redis.call('HSET', KEYS[1], 'holdfast:' .. ARGV[1] .. ':' .. token, '1')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'granted ' .. ARGV[2] .. ' ' .. token .. ' ' .. token
