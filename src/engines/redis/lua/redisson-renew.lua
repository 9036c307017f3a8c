-- A heartbeat for a mutex of Redisson's layout. Its end never moves back.
--
-- KEYS[1]  the lock, at exactly its name
-- ARGV[1]  the claim's id
-- ARGV[2]  the lease in ms from now; 0: leave it as it is
--
-- returns granted <left ms> <token> <floor>
-- returns gone

-- include shared/redisson.lua

local field, token = ownField(KEYS[1], ARGV[1])
if not field then return 'gone' end
local leftMs = redis.call('PTTL', KEYS[1])
if tonumber(ARGV[2]) > leftMs then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  leftMs = ARGV[2]
end
return 'granted ' .. string.format('%.0f', leftMs) .. ' ' .. token .. ' ' .. token
