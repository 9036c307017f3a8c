-- Give back a hold or withdraw a waiting claim, and hand over to whoever is next in the same step.
--
-- KEYS[1]  the name
-- ARGV[1]  the claim's id
-- ARGV[2]  1: leave a mark that makes late copies of the claim answer gone; 0: there can be none
-- ARGV[3]  the channel of the client that releases
-- ARGV[4]  how long the key outlives everything in it, in ms
-- ARGV[5]  how long a mark is kept, in ms
--
-- returns released
-- returns gone

-- include shared/name.lua

local id, idleMs = ARGV[1], tonumber(ARGV[4])
local now = serverTime()
local name, state, stored, mark = load(KEYS[1], id)
settle(name, now)
local units, _, token = live(name, id, state, now)
if units then
  drop(name, id, units, token)
  settle(name, now)
  local channel = parseAsked(stored).channel
  -- Taken out by somebody else than its owner, who is told.
  if channel ~= '' and channel ~= ARGV[3] then
    redis.call('PUBLISH', channel, 'lost\n' .. id .. '\n' .. name.key .. '\n')
  end
end
if ARGV[2] == '1' then
  name.changed = true
  name.marked = now + tonumber(ARGV[5]) * 1000
  -- Each mark clears away two old ones, so that a busy name keeps those of the last minute and no more.
  for _ = 1, 2 do
    if name.mark1 <= name.mark2 then
      local old = redis.call('HGET', name.key, 'x:' .. whole(name.mark1))
      local until_ = old and tonumber(redis.call('HGET', name.key, 'm:' .. old))
      if until_ and until_ > now then break end
      redis.call('HDEL', name.key, 'x:' .. whole(name.mark1), old and 'm:' .. old or 'm:')
      name.mark1 = name.mark1 + 1
    end
  end
  local fields = { 'm:' .. id, whole(name.marked), 'mark1', whole(name.mark1), 'marked', whole(name.marked) }
  if not mark then
    name.mark2 = name.mark2 + 1
    fields[7], fields[8] = 'x:' .. whole(name.mark2), id
    fields[9], fields[10] = 'mark2', whole(name.mark2)
  end
  redis.call('HSET', name.key, unpack(fields))
end
save(name, now, idleMs)
return units and 'released' or 'gone'
