-- Shrink a hold's units without letting go, and let in whoever fits now. Never grows.
--
-- KEYS[1]  the name
-- ARGV[1]  the claim's id
-- ARGV[2]  its units from now on
-- ARGV[3]  how long the key outlives everything in it, in ms
--
-- returns resized
-- returns refused
-- returns gone

-- include shared/many.lua
-- include shared/name.lua

local id, wanted, idleMs = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = serverTime()
evenWhenFull()
local name, state = load(KEYS[1], id)
advance(name, now)
local units, ends, token, holds = live(name, id, state, now)
local answer = 'gone'
if units then
  answer = 'refused'
  if holds and wanted <= units then
    answer = 'resized'
    redis.call('HSET', name.key, 's:' .. id, stateText(wanted, ends, token))
    name.taken = name.taken - (units - wanted)
    name.changed = true
    advance(name, now)
  end
end
save(name, now, idleMs)
return answer
