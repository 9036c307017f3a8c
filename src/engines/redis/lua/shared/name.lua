-- The state of one name, at one key. A string while it is held by one claim, nobody waits, and there are no tombstones, and
-- after that; but not in a Cluster. Otherwise a hash, in which the field `one` has what the string would have, or "many":
--   idle                  the last token. As a string of at least 16 digits: fewer are another program's, a counter perhaps
--   held alone            the second and microsecond of its last heartbeat, how many ms it lasts from then on, and the last
--                         token; from the next line on its request, as in claim.lua: its own token is the last one, less
--                         those that it reserved
--   many                  all that `load` says of it
-- Beside `one` a hash has, with "many":
--   by                    the first holder's request from its second line on; another's, when it begins with another id
-- and for each claim:
--   c:<id> s:<id>         its request, and "units end token"
--   <:<id> >:<id>         its neighbours in the list
-- and in all three cases, where ids have left tombstones:
--   t:<id> x:<n>          tombstones of ids that were released, and in which order they were left
--   tombstone1 tombstone2 first and last of these orders
--   tombstonesEnd         until when the last of them counts
-- Since when a claim waits or holds stands in its request, in the place of the token that it suggested, which nobody needs
-- once its own is minted: a 0 and, directly behind it, the time; 00 where that is its token. Not before the first heartbeat of
-- one that holds alone: until then it is the time of that heartbeat, and not above its token. Older clients leave the
-- suggestion there (0, or a number that does not begin with it) and move the time of the heartbeat: then nobody knows.
-- Times are the server's, in microseconds. One key, so that a script is served all through a slot migration; a list
-- that is linked, so that leaving from anywhere costs the same however many wait; a string, so that a lock which nobody
-- fights for costs little more than a SET in time and memory; `one`, so that one that many fight for costs few commands:
-- claim, release and renew read it before anything else.

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
  local lease, suggestion, reserve, exact, capacity, units, wait, waiterLease, id, channel, owner =
    string.match(request, '^(%d+) (%d+)%+?(%d*) (%d) (%d+) (%d+) (%d) (%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)')
  return {
    lease = tonumber(lease) * 1000,
    suggestion = tonumber(suggestion),
    reserve = tonumber(reserve) or 0,
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

-- "units end token" as numbers.
local function parseState(state)
  local units, ends, token = string.match(state, '^(%d+) (%d+) (%d+)$')
  return tonumber(units), tonumber(ends), tonumber(token)
end

local function stateText(units, ends, token)
  return whole(units) .. ' ' .. whole(ends) .. ' ' .. whole(token)
end

-- The request with the time since when its claim waits or holds.
local function withSince(request, since)
  local leaseMs, tail = string.match(request, '^(%d+) %d+(.*)$')
  return leaseMs .. ' 0' .. whole(since) .. tail
end

-- Before a field is written: what the string said was read, and is written again by `save`. Not in a Cluster: while a slot
-- moves, its old server lets a script write a key that is there, and none that the script has deleted, so that a claim which
-- comes second would end the first. No name is a string there.
local function toHash(name)
  if not name.isString then return end
  redis.call('DEL', name.key)
  name.isString = false
  name.longer = true
end

-- The name, the state of claim `id`, what that claim asked for, and its tombstone. A name has:
--   capacity taken        units in all, and units held
--   token held            the last one minted or reserved; the last one granted: who has a higher one waits
--   soonest lives         no holder's lease ends before the first; no claim's lease ends after the second
--   first waiter last     of all claims, in the order of their tokens: holders, and then those that wait
local function load(key, id)
  local v = redis.pcall('HMGET', key, 'one', 'tombstonesEnd', 's:' .. id, 'c:' .. id, 't:' .. id)
  local isString = v.err ~= nil
  -- Whatever else is wrong, such as a right that is missing, is told as it is.
  if isString and not string.find(v.err, 'WRONGTYPE', 1, true) then redis.call('HMGET', key, 'one') end
  local one, state, asked = isString and redis.call('GET', key) or v[1] or '0', v[3], v[4]
  local name = { key = key, isString = isString, tombstonesEnd = tonumber(v[2]) or 0, changed = false, dropped = false,
    longer = false }
  local capacity, taken, token, held, soonest, lives, first, waiter, last = string.match(one, MANY)
  if capacity then
    name.capacity, name.taken, name.token, name.held = tonumber(capacity), tonumber(taken), tonumber(token), tonumber(held)
    name.soonest, name.lives = tonumber(soonest), tonumber(lives)
    name.first, name.waiter, name.last = first, waiter, last
    return name, state, asked, v[5]
  end
  name.taken, name.held, name.soonest, name.lives, name.first, name.waiter, name.last = 0, 0, math.huge, 0, '', '', ''
  local second, us, leaseMs, upTo, request = string.match(one, '^(%d+) (%d+) (%d+) (%d+)\n(.*)$')
  -- Another program's string is refused as what is not a string is.
  if isString and not (request or #one >= 16 and not string.find(one, '%D')) then redis.call('HGET', key, 'one') end
  name.token = tonumber(upTo or one)
  if request then
    -- From now on there may be more than one.
    local its = parseRequest(request)
    name.capacity, name.taken, name.first, name.last = its.capacity, its.units, its.id, its.id
    name.held = name.token - its.reserve
    local heartbeat = second * 1000000 + us
    local ends = heartbeat + leaseMs * 1000
    name.soonest, name.lives = ends, ends
    name.changed = true
    toHash(name)
    local since = string.match(request, '^%d+ 0(%d+)')
    if since == '0' then
      request = withSince(request, name.held)
    elseif not since and heartbeat <= name.held then
      request = withSince(request, heartbeat)
    end
    local itsState = stateText(its.units, ends, name.held)
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
  return name.first == ''
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
    if name.tombstonesEnd > 0 or name.token > 0 then
      redis.call('HSET', name.key, 'one', string.format('%016.0f', name.token))
      redis.call('PEXPIRE', name.key, leftMs)
    else
      redis.call('DEL', name.key)
    end
    return
  end
  toHash(name)
  local text = manyText(whole(name.capacity), whole(name.taken), whole(name.token), whole(name.held), whole(name.soonest),
    whole(name.lives), name.first, name.waiter, name.last)
  redis.call('HSET', name.key, 'one', text, ...)
  if name.longer then
    redis.call('PEXPIRE', name.key, math.max(leftMs, math.ceil((name.lives - now) / 1000) + idleMs))
  end
end

-- With a second to spare, so that on a busy name few claims have to move the key's own end.
local function lives(name, ends)
  if ends <= name.lives then return end
  name.lives = ends + 1000000
  name.longer = true
end

-- What stands before the first of the list or after the last is left over from earlier and means nothing.
local function after(name, id, link)
  return id ~= name.last and link or ''
end

-- Take `id` out; `link` is what follows it, where that is known.
local function unlink(name, id, link)
  local before = id ~= name.first and redis.call('HGET', name.key, '<:' .. id) or ''
  local behind = id ~= name.last and (link or redis.call('HGET', name.key, '>:' .. id)) or ''
  if before ~= '' and behind ~= '' then redis.call('HSET', name.key, '>:' .. before, behind, '<:' .. behind, before) end
  if before == '' then name.first = behind end
  if behind == '' then name.last = before end
  if name.waiter == id then name.waiter = behind end
  name.changed = true
end

local function append(name, id)
  local before = name.last
  if before == '' then
    name.first = id
  else
    redis.call('HSET', name.key, '>:' .. before, id, '<:' .. id, before)
  end
  name.last = id
  name.changed = true
end

-- A claim leaves, whether it holds or waits.
local function drop(name, id, units, token, link)
  local holds = token <= name.held
  -- The same id may be claimed again by another client: what is said of the first holder leaves with it. (There is no
  -- field with an empty name.)
  local by = holds and name.first == id and 'by' or ''
  unlink(name, id, link)
  if holds then
    name.taken = name.taken - units
    if name.first == name.waiter then name.soonest = math.huge end
  end
  redis.call('HDEL', name.key, 's:' .. id, 'c:' .. id, '<:' .. id, '>:' .. id, by)
  name.dropped = true
end

-- The token of a claim that arrives; those that it reserves are above it.
local function mint(name, asked, now)
  local token = math.max(name.token + 1, now, asked.suggestion)
  name.token = token + asked.reserve
  return token
end

-- From now on the claim with this token holds.
local function hold(name, units, ends, token)
  name.taken = name.taken + units
  name.held = token
  name.soonest = math.min(name.soonest, ends)
  name.changed = true
end

-- The lowest live token, and all of them when asked for: "floor" or "floor t1,t2,…".
local function fence(name, id, token, exact)
  if not exact then
    if name.first == id then return whole(token) end
    local _, _, floor = parseState(redis.call('HGET', name.key, 's:' .. name.first))
    return whole(floor)
  end
  local tokens, at = {}, name.first
  while at ~= name.waiter do
    local v = redis.call('HMGET', name.key, 's:' .. at, '>:' .. at)
    local _, _, one = parseState(v[1])
    tokens[#tokens + 1] = whole(one)
    at = after(name, at, v[2])
  end
  return tokens[1] .. ' ' .. table.concat(tokens, ',')
end

local function expireHolders(name, now)
  name.soonest = math.huge
  name.changed = true
  local at = name.first
  while at ~= name.waiter do
    local id = at
    local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id)
    local units, ends, token = parseState(v[1])
    at = after(name, id, v[2])
    if ends <= now then drop(name, id, units, token, v[2]) else name.soonest = math.min(name.soonest, ends) end
  end
end

-- Publish to a client, in lines: what happened, to which claim, at which key, and more. One that does not subscribe has no
-- channel.
local function push(channel, kind, id, name, more)
  if channel ~= '' then redis.call('PUBLISH', channel, kind .. '\n' .. id .. '\n' .. name.key .. '\n' .. more) end
end

-- Advance the queue: expired holders leave, dead waiters at the front leave, the first waiter enters if it fits. Nothing is
-- pushed to `to`, whose client has let it go on already.
local function advance(name, now, to)
  if now >= name.soonest then expireHolders(name, now) end
  -- With everything taken nobody fits, and dead waiters can stay until one fits.
  while name.waiter ~= '' and name.taken < name.capacity do
    local id = name.waiter
    local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id, 'c:' .. id)
    local units, ends, token = parseState(v[1])
    if ends <= now then
      drop(name, id, units, token, v[2])
    elseif name.taken + units <= name.capacity then
      local exact, by, channel = string.match(v[3], '^%d+ %S+ (%d)[^\n]*\n([^\n]*\n([^\n]*).*)$')
      -- Its waiter lease stays as it is: the confirmation starts the lease proper.
      name.waiter = after(name, id, v[2])
      hold(name, units, ends, token)
      local request = withSince(v[3], now)
      if name.first == id then
        redis.call('HSET', name.key, 'c:' .. id, request, 'by', by)
      else
        redis.call('HSET', name.key, 'c:' .. id, request)
      end
      if id ~= to then push(channel, 'granted', id, name, whole(token) .. ' ' .. fence(name, id, token, exact == '1')) end
    else
      break
    end
  end
end

-- The claim `id` after the queue was advanced: its state, and whether it holds; nil when its lease has ended.
local function live(name, id, state, now)
  -- Advancing may have dropped it.
  if name.dropped then state = redis.call('HGET', name.key, 's:' .. id) end
  if not state then return nil end
  local units, ends, token = parseState(state)
  if ends > now then return units, ends, token, token <= name.held end
  -- A dead waiter in the middle of the queue; holders and the first waiter were checked already.
  drop(name, id, units, token)
  advance(name, now)
  return nil
end

-- Who holds it first, as text; empty when nobody does.
local function holder(name)
  if name.first == name.waiter then return '' end
  if name.holder == nil then
    name.holder = parseRequest(redis.call('HGET', name.key, 'c:' .. name.first)).owner
  end
  return name.holder
end

-- granted <left ms> <token> <floor> [<live tokens>]
local function grantedText(name, id, ends, token, exact, now)
  return 'granted ' .. whole(math.floor((ends - now) / 1000)) .. ' ' .. whole(token) .. ' ' .. fence(name, id, token, exact)
end

-- The first waiter must be alive: waiters whose lease has ended leave from the front.
local function clearFront(name, now)
  while name.waiter ~= '' do
    local units, ends, token = parseState(redis.call('HGET', name.key, 's:' .. name.waiter))
    if ends > now then return end
    drop(name, name.waiter, units, token)
  end
end

-- In ms: until the first of the leases that block others ends. The queue was advanced: it is not over.
local function untilNext(name, now)
  return name.soonest < math.huge and whole(math.ceil((name.soonest - now) / 1000)) or '0'
end

-- queued <token> <ms until a blocking lease ends, for the first waiter> <holder>
local function queuedText(name, id, token, now)
  local nextMs = name.waiter == id and untilNext(name, now) or '-'
  return 'queued ' .. whole(token) .. ' ' .. nextMs .. ' ' .. holder(name)
end

-- One request of several: its error is its own, the others are served.
local function isolated(verb, key, request)
  local fine, answer = pcall(verb, key, request)
  if fine then return answer end
  return 'error ' .. string.gsub(type(answer) == 'table' and answer.err or tostring(answer), '\n', ' ')
end
