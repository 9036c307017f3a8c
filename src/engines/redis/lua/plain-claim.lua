-- Take a mutex in the layout that many libraries share: SET key value NX PX. The value is "id:token".
--
-- KEYS[1]  the lock, at exactly its name
-- KEYS[2]  the tombstone of this id's release, in the same slot
-- ARGV[1]  the claim's id
-- ARGV[2]  the lease in ms
-- ARGV[3]  mint no token below this
--
-- returns granted <left ms> <token> <floor>
-- returns busy
-- returns gone

if redis.call('EXISTS', KEYS[2]) == 1 then return 'gone' end
local value = redis.call('GET', KEYS[1])
if value then
  -- Ours already, when the answer was lost and it is asked again.
  local id, token = string.match(value, '^(.*):(%d+)$')
  if id ~= ARGV[1] then return 'busy' end
  return 'granted ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. ' ' .. token .. ' ' .. token
end
local time = redis.call('TIME')
-- Lua prints large numbers as 1.79e+15.
local token = string.format('%.0f', math.max(time[1] * 1000000 + time[2], tonumber(ARGV[3])))
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. token, 'NX', 'PX', ARGV[2])
return 'granted ' .. ARGV[2] .. ' ' .. token .. ' ' .. token
