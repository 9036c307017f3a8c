-- A sign of life for up to 100 claims: holders keep their lease, waiters their place. Creates nothing.
--
-- KEYS[n]  the name of the n-th claim; names may repeat. In a Cluster all of them are the same one
-- ARGV[1]  how long a key outlives everything in it, in ms
-- ARGV[n * 3 - 1]  its id
-- ARGV[n * 3]      the lease in ms from now, or empty for the claim's own
-- ARGV[n * 3 + 1]  raise its token to this, or empty
--
-- returns granted <left ms> <token> <floor> [<live tokens>]
-- returns queued <last token> <next ms, or - when not the first waiter> <owner of the first holder>
-- returns gone

-- include shared/name.lua

-- Tokens stand in order among the holders: a raised one moves back behind those it passed.
local function raise(name, id, units, ends, token, wanted)
  if wanted <= token then return token end
  unlink(name, id, 'h1', 'h2')
  redis.call('HDEL', name.key, '<:' .. id, '>:' .. id)
  local before = name.h2
  while before ~= '' do
    local v = redis.call('HMGET', name.key, 's:' .. before, '<:' .. before)
    local _, _, other = parseState(v[1])
    if other <= wanted then break end
    before = v[2] or ''
  end
  if before == name.h2 then
    append(name, id, 'h1', 'h2')
  else
    local after = before == '' and name.h1 or redis.call('HGET', name.key, '>:' .. before)
    if before == '' then name.h1 = id else redis.call('HSET', name.key, '>:' .. before, id) end
    redis.call('HSET', name.key, '<:' .. id, before, '>:' .. id, after, '<:' .. after, id)
  end
  name.token = math.max(name.token, wanted)
  name.holder = nil
  return wanted
end

local idleMs = tonumber(ARGV[1])
local now = serverTime()
local names, answers = {}, {}
for n = 1, #KEYS do
  local id, lease, wanted = ARGV[n * 3 - 1], ARGV[n * 3], ARGV[n * 3 + 1]
  local name, state, stored = names[KEYS[n]], nil, nil
  if name then
    name.moved = false
    local v = redis.call('HMGET', name.key, 's:' .. id, 'c:' .. id)
    state, stored = v[1], v[2]
  else
    name, state, stored = load(KEYS[n], id)
    names[KEYS[n]] = name
    settle(name, now)
  end
  local units, ends, token = live(name, id, state, now)
  if not units then
    answers[n] = 'gone'
  else
    local asked = parseAsked(stored)
    if token > 0 then
      ends = math.max(ends, now + (lease == '' and asked.lease or tonumber(lease) * 1000))
      if wanted ~= '' then token = raise(name, id, units, ends, token, tonumber(wanted)) end
      -- Alone it is also the soonest to end: the first waiter is told when to look.
      if name.h1 == id and name.h2 == id then name.soonest = ends end
      lives(name, ends)
    else
      ends = now + asked.waiterLease
      lives(name, ends + asked.lease)
    end
    redis.call('HSET', name.key, 's:' .. id, stateText(units, ends, token))
    name.changed = true
    if token > 0 then
      answers[n] = grantedText(name, id, ends, token, asked.exact, now)
    else
      answers[n] = queuedText(name, id, now)
    end
  end
end
for _, name in pairs(names) do save(name, now, idleMs) end
return answers
