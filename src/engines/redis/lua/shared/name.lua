-- The state of one name, a hash at one key:
--   capacity taken        units in all, and units held
--   token                 the last one minted; stays when the name is idle
--   soonest lives         no holder's lease ends before the first; no claim's lease ends after the second
--   h1 h2 w1 w2           first and last holder (by token), first and last waiter (by arrival)
--   c:<id> s:<id>         a claim: what was asked (never changes), and "units end token" (token 0: it waits)
--   <:<id> >:<id>         its neighbours in its list
--   m:<id> x:<n>          marks of ids that were released, and in which order they were left
--   mark1 mark2 marked    first and last of these orders, and until when they are needed
-- Times are the server's, in microseconds. One key, so that a script is served all through a slot migration; lists
-- that are linked, so that leaving from anywhere costs the same however many wait.

-- Lua prints large numbers as 1.79e+15.
local function whole(number)
  return string.format('%.0f', number)
end

local function serverTime()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The name, the state of claim `id`, what that claim asked for, and its mark.
local function load(key, id)
  local v = redis.call('HMGET', key, 'capacity', 'taken', 'token', 'soonest', 'lives', 'h1', 'h2', 'w1', 'w2',
    'mark1', 'mark2', 'marked', 's:' .. id, 'c:' .. id, 'm:' .. id)
  local name = {
    key = key,
    capacity = tonumber(v[1]),
    taken = tonumber(v[2]) or 0,
    token = tonumber(v[3]) or 0,
    soonest = tonumber(v[4]) or math.huge,
    lives = tonumber(v[5]) or 0,
    h1 = v[6] or '',
    h2 = v[7] or '',
    w1 = v[8] or '',
    w2 = v[9] or '',
    mark1 = tonumber(v[10]) or 1,
    mark2 = tonumber(v[11]) or 0,
    marked = tonumber(v[12]) or 0,
    changed = false,
    moved = false,
  }
  return name, v[13], v[14], v[15]
end

local function isIdle(name)
  return name.h1 == '' and name.w1 == ''
end

-- Write back what `load` read, with more fields of the same hash, and let the key outlive everything in it by `idleMs`.
local function save(name, now, idleMs, ...)
  if not name.changed then return end
  local leftMs = math.max(idleMs, math.ceil((name.marked - now) / 1000))
  if isIdle(name) then
    redis.call('HDEL', name.key, 'capacity', 'taken', 'soonest', 'lives', 'h1', 'h2', 'w1', 'w2')
    if name.token > 0 then redis.call('HSET', name.key, 'token', whole(name.token)) end
  else
    redis.call('HSET', name.key,
      'capacity', whole(name.capacity),
      'taken', whole(name.taken),
      'token', whole(name.token),
      'soonest', name.soonest < math.huge and whole(name.soonest) or '',
      'lives', whole(name.lives),
      'h1', name.h1,
      'h2', name.h2,
      'w1', name.w1,
      'w2', name.w2,
      ...)
    leftMs = math.max(leftMs, math.ceil((name.lives - now) / 1000) + idleMs)
  end
  redis.call('PEXPIRE', name.key, whole(leftMs))
end

-- "units end token" as numbers.
local function parseState(state)
  local units, ends, token = string.match(state, '^(%d+) (%d+) (%d+)$')
  return tonumber(units), tonumber(ends), tonumber(token)
end

local function stateText(units, ends, token)
  return whole(units) .. ' ' .. whole(ends) .. ' ' .. whole(token)
end

-- What a claim asked for: "leaseMs waiterLeaseMs exact tokenAtLeast channel", then its owner and its data on lines of their own.
local function parseAsked(asked)
  local lease, waiterLease, exact, suggestion, channel = string.match(asked, '^(%d+) (%d+) (%d) (%d+) ([^\n]*)')
  return {
    lease = tonumber(lease) * 1000,
    waiterLease = tonumber(waiterLease) * 1000,
    exact = exact == '1',
    suggestion = tonumber(suggestion),
    channel = channel,
  }
end

local function lives(name, ends)
  name.lives = math.max(name.lives, ends)
end

-- Take `id` out of the list that starts at name[first] and ends at name[last].
local function unlink(name, id, first, last)
  local before, after = '', ''
  if name[first] ~= id or name[last] ~= id then
    local v = redis.call('HMGET', name.key, '<:' .. id, '>:' .. id)
    before, after = v[1] or '', v[2] or ''
  end
  if before == '' then name[first] = after else redis.call('HSET', name.key, '>:' .. before, after) end
  if after == '' then name[last] = before else redis.call('HSET', name.key, '<:' .. after, before) end
  name.changed = true
end

local function append(name, id, first, last)
  local before = name[last]
  if before == '' then
    name[first] = id
  else
    redis.call('HSET', name.key, '>:' .. before, id, '<:' .. id, before)
  end
  name[last] = id
  name.changed = true
end

-- A claim leaves: a holder when it has a token, otherwise a waiter.
local function drop(name, id, units, token)
  if token > 0 then
    unlink(name, id, 'h1', 'h2')
    name.taken = name.taken - units
    if name.h1 == '' then name.soonest = math.huge end
  else
    unlink(name, id, 'w1', 'w2')
  end
  redis.call('HDEL', name.key, 's:' .. id, 'c:' .. id, '<:' .. id, '>:' .. id)
  name.moved = true
end

-- Mint a token and stand among the holders. The caller writes the claim's state.
local function grant(name, id, units, ends, suggestion, now)
  local token = math.max(name.token + 1, now, suggestion)
  name.token = token
  name.taken = name.taken + units
  name.soonest = math.min(name.soonest, ends)
  append(name, id, 'h1', 'h2')
  return token
end

-- The lowest live token, and all of them when asked for: "floor" or "floor t1,t2,…".
local function fence(name, id, token, exact)
  if not exact then
    if name.h1 == id then return whole(token) end
    local _, _, floor = parseState(redis.call('HGET', name.key, 's:' .. name.h1))
    return whole(floor)
  end
  local tokens, at = {}, name.h1
  while at ~= '' do
    local v = redis.call('HMGET', name.key, 's:' .. at, '>:' .. at)
    -- The claim that asks may not have been written yet.
    local _, _, one = parseState(at == id and stateText(0, 0, token) or v[1])
    tokens[#tokens + 1] = whole(one)
    at = v[2] or ''
  end
  return tokens[1] .. ' ' .. table.concat(tokens, ',')
end

local function expireHolders(name, now)
  name.soonest = math.huge
  name.changed = true
  local at = name.h1
  while at ~= '' do
    local id = at
    local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id)
    local units, ends, token = parseState(v[1])
    at = v[2] or ''
    if ends <= now then drop(name, id, units, token) else name.soonest = math.min(name.soonest, ends) end
  end
end

-- What the rule demands now: expired holders leave, dead waiters at the front leave, the first waiter enters if it fits.
local function settle(name, now)
  if now >= name.soonest then expireHolders(name, now) end
  while name.w1 ~= '' do
    local id = name.w1
    local v = redis.call('HMGET', name.key, 's:' .. id, 'c:' .. id)
    local units, ends = parseState(v[1])
    if ends <= now then
      drop(name, id, units, 0)
    elseif name.taken + units <= name.capacity then
      local asked = parseAsked(v[2])
      unlink(name, id, 'w1', 'w2')
      redis.call('HDEL', name.key, '<:' .. id, '>:' .. id)
      -- Its waiter lease stays as it is: the confirmation starts the lease proper.
      local token = grant(name, id, units, ends, asked.suggestion, now)
      redis.call('HSET', name.key, 's:' .. id, stateText(units, ends, token))
      name.moved = true
      if asked.channel ~= '' then
        redis.call('PUBLISH', asked.channel, 'granted\n' .. id .. '\n' .. name.key .. '\n'
          .. whole(token) .. ' ' .. fence(name, id, token, asked.exact))
      end
    else
      break
    end
  end
end

-- The claim `id` after the name was settled: its state, or nil when its lease has ended.
local function live(name, id, state, now)
  -- Settling may have granted or dropped it.
  if name.moved then state = redis.call('HGET', name.key, 's:' .. id) end
  if not state then return nil end
  local units, ends, token = parseState(state)
  if ends > now then return units, ends, token end
  -- A dead waiter in the middle of the queue; holders and the first waiter were looked at already.
  drop(name, id, units, token)
  settle(name, now)
  return nil
end

-- Who holds it first, as text; empty when nobody does.
local function holder(name)
  if name.h1 == '' then return '' end
  if name.holder == nil then
    name.holder = string.match(redis.call('HGET', name.key, 'c:' .. name.h1), '^[^\n]*\n([^\n]*)')
  end
  return name.holder
end

-- granted <left ms> <token> <floor> [<live tokens>]
local function grantedText(name, id, ends, token, exact, now)
  return 'granted ' .. whole(math.floor((ends - now) / 1000)) .. ' ' .. whole(token) .. ' ' .. fence(name, id, token, exact)
end

-- queued <last token> <ms until a blocking lease ends, for the first waiter> <holder>
local function queuedText(name, id, now)
  local nextMs = '-'
  if name.w1 == id then
    nextMs = name.soonest < math.huge and whole(math.max(0, math.ceil((name.soonest - now) / 1000))) or '0'
  end
  return 'queued ' .. whole(name.token) .. ' ' .. nextMs .. ' ' .. holder(name)
end
