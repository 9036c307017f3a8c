-- Change a busy name's capacity: let in what now fits, drop waiters that never will, leave holders alone.
--
-- KEYS[1]  the name
-- ARGV[1]  its capacity from now on
-- ARGV[2]  how long the key outlives everything in it, in ms
--
-- returns changed
-- returns idle

-- include shared/name.lua

local capacity, idleMs = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = serverTime()
local name = load(KEYS[1], '')
if now >= name.soonest then expireHolders(name, now) end
if isIdle(name) then
  save(name, now, idleMs)
  return 'idle'
end
name.capacity = capacity
name.changed = true
local at = name.w1
while at ~= '' do
  local id = at
  local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id, 'c:' .. id)
  local units = parseState(v[1])
  at = v[2] or ''
  if units > capacity then
    drop(name, id, units, 0)
    push(parseRequest(v[3]).channel, 'lost', id, name, '')
  end
end
settle(name, now)
save(name, now, idleMs)
return 'changed'
