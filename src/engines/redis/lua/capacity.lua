-- Change a busy name's capacity: let in what now fits, drop waiters that never will, leave holders alone.
--
-- KEYS[1]  the name
-- ARGV[1]  the capacity that it has
-- ARGV[2]  the capacity that it gets
-- ARGV[3]  how long the key outlives everything in it, in ms
--
-- returns set
-- returns mismatch <capacity of the name>

-- include shared/many.lua
-- include shared/name.lua

local from, to, idleMs = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = serverTime()
evenWhenFull()
local name = load(KEYS[1], '')
advance(name, now)
local answer = 'set'
if not isIdle(name) and name.capacity ~= to then
  if name.capacity ~= from then
    answer = 'mismatch ' .. whole(name.capacity)
  else
    name.capacity = to
    name.changed = true
    local at = name.waiter
    while at ~= '' do
      local id = at
      local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id, 'c:' .. id)
      local units, ends, token = parseState(v[1])
      at = after(name, id, v[2])
      if units > to then
        drop(name, id, units, token, v[2])
        -- A dead one was no waiter any more: it lost nothing.
        if ends > now then push(parseRequest(v[3]).channel, 'lost', id, name, '') end
      end
    end
    advance(name, now)
  end
end
save(name, now, idleMs)
return answer
