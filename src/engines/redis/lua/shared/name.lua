-- The state of one name, a hash at one key:
--   one                   idle: the last token, and " t" where ids may have left tombstones. Held by one claim while nobody
--                         waits: the second and microsecond of its last heartbeat, how many ms it lasts from then on,
--                         its token and that " t", and from the next line on its request, as in claim.lua. Otherwise
--                         "many", with all that `load` says of it, and there are
--   by                    the first holder's request from its second line on; another's, when it begins with another id
-- and for each claim:
--   c:<id> s:<id>         its request (never changes), and "units end token" (token 0: it waits)
--   <:<id> >:<id>         its neighbours in its list
-- and in all three cases:
--   t:<id> x:<n>          tombstones of ids that were released, and in which order they were left
--   tombstone1 tombstone2 first and last of these orders
--   tombstonesEnd         until when the last of them counts
-- Times are the server's, in microseconds. One key, so that a script is served all through a slot migration; lists
-- that are linked, so that leaving from anywhere costs the same however many wait; "one", so that a lock which nobody
-- fights for costs little more than a SET, and one that many fight for costs few commands: claim, release and renew
-- read it before anything else.

-- A server whose memory is full refuses a script's first write when that could need memory, and nothing after it. This one
-- needs none and changes nothing: what keeps, ends or shows claims goes on then.
local function evenWhenFull()
  redis.pcall('HDEL', KEYS[1], '')
end

-- Lua prints large numbers as 1.79e+15.
local function whole(number)
  return string.format('%.0f', number)
end

local function serverTime()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The request of a claim, as described in claim.lua, in microseconds.
local function parseRequest(request)
  local lease, suggestion, exact, capacity, units, wait, waiterLease, id, channel, owner =
    string.match(request, '^(%d+) (%d+) (%d) (%d+) (%d+) (%d) (%d+) %d+\n([^\n]*)\n([^\n]*)\n([^\n]*)')
  return {
    lease = tonumber(lease) * 1000,
    suggestion = tonumber(suggestion),
    exact = exact == '1',
    capacity = tonumber(capacity),
    units = tonumber(units),
    wait = wait == '1',
    waiterLease = tonumber(waiterLease) * 1000,
    id = id,
    channel = channel,
    owner = owner,
  }
end

-- The name, the state of claim `id`, what that claim asked for, and its tombstone. A name has:
--   capacity taken        units in all, and units held
--   token                 the last one minted
--   soonest lives         no holder's lease ends before the first; no claim's lease ends after the second
--   h1 h2 w1 w2           first and last holder (by token), first and last waiter (by arrival)
local function load(key, id)
  local v = redis.call('HMGET', key, 'one', 'tombstonesEnd', 's:' .. id, 'c:' .. id, 't:' .. id)
  local one, state, asked = v[1] or '0', v[3], v[4]
  local name = { key = key, tombstonesEnd = tonumber(v[2]) or 0, changed = false, moved = false, longer = false }
  local capacity, taken, last, soonest, lives, h1, h2, w1, w2 = string.match(one, MANY)
  if capacity then
    name.capacity, name.taken, name.token = tonumber(capacity), tonumber(taken), tonumber(last)
    name.soonest, name.lives = tonumber(soonest), tonumber(lives)
    name.h1, name.h2, name.w1, name.w2 = h1, h2, w1, w2
    return name, state, asked, v[5]
  end
  name.taken, name.soonest, name.lives, name.h1, name.h2, name.w1, name.w2 = 0, math.huge, 0, '', '', '', ''
  local second, us, leaseMs, token, request = string.match(one, '^(%d+) (%d+) (%d+) (%d+) ?t?\n(.*)$')
  name.token = tonumber(token or string.match(one, '^%d+'))
  if request then
    -- From now on there may be more than one.
    local its = parseRequest(request)
    name.capacity, name.taken, name.h1, name.h2 = its.capacity, its.units, its.id, its.id
    local ends = second * 1000000 + us + leaseMs * 1000
    name.soonest, name.lives = ends, ends
    name.changed = true
    local itsState = whole(its.units) .. ' ' .. whole(ends) .. ' ' .. token
    redis.call('HSET', key, 's:' .. its.id, itsState, 'c:' .. its.id, request, 'by', string.match(request, '\n(.*)$'))
    if its.id == id then state, asked = itsState, request end
  end
  return name, state, asked, v[5]
end

-- A tombstone counts until its time; the field may stay for longer.
local function hasTombstone(tombstone, now)
  return tombstone and tonumber(tombstone) > now
end

-- Tombstones whose time is over leave, the oldest first, some at a time. Answers in which orders tombstones are left: from, to.
local function clearTombstones(name, now)
  local v = redis.call('HMGET', name.key, 'tombstone1', 'tombstone2')
  local first, last = tonumber(v[1] or 1), tonumber(v[2] or 0)
  for _ = 1, 100 do
    local old = first <= last and redis.call('HGET', name.key, 'x:' .. whole(first))
    if not old or hasTombstone(redis.call('HGET', name.key, 't:' .. old), now) then break end
    redis.call('HDEL', name.key, 'x:' .. whole(first), 't:' .. old)
    first = first + 1
  end
  return first, last
end

local function isIdle(name)
  return name.h1 == '' and name.w1 == ''
end

-- Write back what `load` read, with more fields of the same hash, and let the key outlive everything in it by `idleMs`.
local function save(name, now, idleMs, ...)
  -- No new tombstones came for a minute, which would have cleared away the old ones.
  if name.tombstonesEnd > 0 and name.tombstonesEnd <= now then
    local first, last = clearTombstones(name, now)
    name.changed = true
    if first > last then
      redis.call('HDEL', name.key, 'tombstone1', 'tombstone2', 'tombstonesEnd')
      name.tombstonesEnd = 0
    else
      redis.call('HSET', name.key, 'tombstone1', whole(first))
    end
  end
  if not name.changed then return end
  local leftMs = math.max(idleMs, math.ceil((name.tombstonesEnd - now) / 1000))
  if isIdle(name) then
    redis.call('HDEL', name.key, 'by')
    local flag = name.tombstonesEnd > 0 and ' t' or ''
    if name.token > 0 or flag ~= '' then redis.call('HSET', name.key, 'one', whole(name.token) .. flag) end
    redis.call('PEXPIRE', name.key, leftMs)
    return
  end
  local text = manyText(whole(name.capacity), whole(name.taken), whole(name.token), whole(name.soonest), whole(name.lives),
    name.h1, name.h2, name.w1, name.w2)
  redis.call('HSET', name.key, 'one', text, ...)
  if name.longer then
    redis.call('PEXPIRE', name.key, math.max(leftMs, math.ceil((name.lives - now) / 1000) + idleMs))
  end
end

-- "units end token" as numbers.
local function parseState(state)
  local units, ends, token = string.match(state, '^(%d+) (%d+) (%d+)$')
  return tonumber(units), tonumber(ends), tonumber(token)
end

local function stateText(units, ends, token)
  return whole(units) .. ' ' .. whole(ends) .. ' ' .. whole(token)
end

-- With a second to spare, so that on a busy name few claims have to move the key's own end.
local function lives(name, ends)
  if ends <= name.lives then return end
  name.lives = ends + 1000000
  name.longer = true
end

-- Lists: name[first] and name[last] are their ends. What stands before the first or after the last is left over from
-- earlier and means nothing.
local function after(name, id, last, link)
  return id ~= name[last] and link or ''
end

-- Take `id` out; `link` is what follows it, where that is known.
local function unlink(name, id, first, last, link)
  name.changed = true
  if name[first] == id then
    if name[last] == id then
      name[first], name[last] = '', ''
    else
      name[first] = link or redis.call('HGET', name.key, '>:' .. id)
    end
    return
  end
  local v = redis.call('HMGET', name.key, '<:' .. id, '>:' .. id)
  if name[last] == id then
    name[last] = v[1]
  else
    redis.call('HSET', name.key, '>:' .. v[1], v[2], '<:' .. v[2], v[1])
  end
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
local function drop(name, id, units, token, link)
  -- The same id may be claimed again by another client: what is said of the first holder leaves with it. (There is no
  -- field with an empty name.)
  local by = token > 0 and name.h1 == id and 'by' or ''
  if token > 0 then
    unlink(name, id, 'h1', 'h2', link)
    name.taken = name.taken - units
    if name.h1 == '' then name.soonest = math.huge end
  else
    unlink(name, id, 'w1', 'w2', link)
  end
  redis.call('HDEL', name.key, 's:' .. id, 'c:' .. id, '<:' .. id, '>:' .. id, by)
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
    at = after(name, at, 'h2', v[2])
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
    at = after(name, id, 'h2', v[2])
    if ends <= now then drop(name, id, units, token, v[2]) else name.soonest = math.min(name.soonest, ends) end
  end
end

-- Publish to a client, in lines: what happened, to which claim, at which key, and more. One that does not subscribe has no
-- channel.
local function push(channel, kind, id, name, more)
  if channel ~= '' then redis.call('PUBLISH', channel, kind .. '\n' .. id .. '\n' .. name.key .. '\n' .. more) end
end

-- Advance the queue: expired holders leave, dead waiters at the front leave, the first waiter enters if it fits.
local function advance(name, now)
  if now >= name.soonest then expireHolders(name, now) end
  -- With everything taken nobody fits, and dead waiters can stay until one fits.
  while name.w1 ~= '' and name.taken < name.capacity do
    local id = name.w1
    local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id, 'c:' .. id)
    local units, ends = parseState(v[1])
    if ends <= now then
      drop(name, id, units, 0, v[2])
    elseif name.taken + units <= name.capacity then
      local suggestion, exact, by, channel = string.match(v[3], '^%d+ (%d+) (%d)[^\n]*\n([^\n]*\n([^\n]*).*)$')
      unlink(name, id, 'w1', 'w2', v[2])
      -- Its waiter lease stays as it is: the confirmation starts the lease proper.
      local token = grant(name, id, units, ends, tonumber(suggestion), now)
      redis.call('HSET', name.key, 's:' .. id, stateText(units, ends, token))
      if name.h1 == id then redis.call('HSET', name.key, 'by', by) end
      name.moved = true
      push(channel, 'granted', id, name, whole(token) .. ' ' .. fence(name, id, token, exact == '1'))
    else
      break
    end
  end
end

-- The claim `id` after the queue was advanced: its state, or nil when its lease has ended.
local function live(name, id, state, now)
  -- Advancing may have granted or dropped it.
  if name.moved then state = redis.call('HGET', name.key, 's:' .. id) end
  if not state then return nil end
  local units, ends, token = parseState(state)
  if ends > now then return units, ends, token end
  -- A dead waiter in the middle of the queue; holders and the first waiter were checked already.
  drop(name, id, units, token)
  advance(name, now)
  return nil
end

-- Who holds it first, as text; empty when nobody does.
local function holder(name)
  if name.h1 == '' then return '' end
  if name.holder == nil then
    name.holder = parseRequest(redis.call('HGET', name.key, 'c:' .. name.h1)).owner
  end
  return name.holder
end

-- granted <left ms> <token> <floor> [<live tokens>]
local function grantedText(name, id, ends, token, exact, now)
  return 'granted ' .. whole(math.floor((ends - now) / 1000)) .. ' ' .. whole(token) .. ' ' .. fence(name, id, token, exact)
end

-- The first waiter must be alive: waiters whose lease has ended leave from the front.
local function clearFront(name, now)
  while name.w1 ~= '' do
    local units, ends = parseState(redis.call('HGET', name.key, 's:' .. name.w1))
    if ends > now then return end
    drop(name, name.w1, units, 0)
  end
end

-- In ms: until the first of the leases that block others ends.
local function untilNext(name, now)
  return name.soonest < math.huge and whole(math.max(0, math.ceil((name.soonest - now) / 1000))) or '0'
end

-- queued <last token> <ms until a blocking lease ends, for the first waiter> <holder>
local function queuedText(name, id, now)
  local nextMs = name.w1 == id and untilNext(name, now) or '-'
  return 'queued ' .. whole(name.token) .. ' ' .. nextMs .. ' ' .. holder(name)
end

-- One request of several: its error is its own, the others are served.
local function isolated(verb, key, request)
  local fine, answer = pcall(verb, key, request)
  if fine then return answer end
  return 'error ' .. string.gsub(type(answer) == 'table' and answer.err or tostring(answer), '\n', ' ')
end
