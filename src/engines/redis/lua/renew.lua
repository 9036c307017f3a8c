-- A heartbeat for up to 100 claims: holders keep their lease, waiters their position. Creates nothing.
--
-- KEYS[n]  the name of the n-th claim; names may repeat. In a Cluster all of them are the same one
-- ARGV[n]  its request, in lines: its id; the lease in ms from now, or empty for the claim's own; the token that it is to
--          have at least, or empty
-- ARGV[#KEYS + 1]  how long a key outlives everything in it, in ms
--
-- The answers, a line each:
-- returns granted <left ms> <token> <floor> [<live tokens>]
-- returns queued <token> <next ms, or - when not the first waiter> <owner of the first holder>
-- returns gone
-- returns revoked: gone, and its tombstone is there, so somebody released it
-- returns error <message>: this one's request failed

-- First the claims that hold their name alone while nobody waits. The functions below cost more than all of this, so they
-- are made only when somebody needs them. A name where one had to be put off puts off all that follow there.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local idleMs = tonumber(ARGV[#KEYS + 1])
local answers, others, putOff = {}, {}, {}
for n = 1, #KEYS do
  local id, leaseMs, wanted = string.match(ARGV[n], '^([^\n]*)\n(%d*)\n(%d*)$')
  local one = not putOff[KEYS[n]] and redis.pcall('GET', KEYS[n])
  local isHash = type(one) == 'table'
  if isHash then one = redis.pcall('HGET', KEYS[n], 'one') end
  -- plain alone: one = false
  local s, us, forMs, upTo, own, since, rest, reserve, exact, holder = string.match(type(one) == 'string' and one or '',
    '^(%d+) (%d+) (%d+) (%d+)\n(%d+) (%d+)(%+?(%d*) (%d)[^\n]*\n([^\n]*).*)$')
  local leftMs = holder == id and wanted == '' and forMs + (s - time[1]) * 1000 + (us - time[2]) / 1000
  local tombstonesMs = 0
  if leftMs and isHash then
    local tombstonesEnd = redis.call('HGET', KEYS[n], 'tombstonesEnd')
    if tombstonesEnd then tombstonesMs = math.ceil((tombstonesEnd - now) / 1000) end
    -- All tombstones are over: they are cleared away below.
    if tombstonesEnd and tombstonesMs <= 0 then leftMs = nil end
  end
  if leftMs and leftMs > 0 then
    if leaseMs == '' then leaseMs = own end
    local token = reserve == '' and upTo or string.format('%.0f', upTo - reserve)
    -- Its end never moves back. Written even then: with ack, an answer counts when the replicas have what it says.
    if leftMs < tonumber(leaseMs) then
      leftMs = tonumber(leaseMs)
      -- Its first heartbeat: the time of the grant moves to where it stays.
      if not string.find(since, '^0%d') then
        local granted = s .. string.sub('00000' .. us, -6)
        local before = token - granted
        if before == 0 then since = '00' elseif before > 0 then since = '0' .. granted end
      end
      one = time[1] .. ' ' .. time[2] .. ' ' .. leaseMs .. ' ' .. upTo .. '\n' .. own .. ' ' .. since .. rest
    end
    local keepMs = math.max(math.ceil(leftMs) + idleMs, tombstonesMs)
    -- The expiry first: a server whose memory is full refuses a script that begins with SET, and not after this.
    redis.call('PEXPIRE', KEYS[n], string.format('%.0f', keepMs))
    if isHash then redis.call('HSET', KEYS[n], 'one', one) else redis.call('SET', KEYS[n], one, 'KEEPTTL') end
    answers[n] = 'granted ' .. string.format('%.0f', math.floor(leftMs)) .. ' ' .. token .. ' ' .. token
    if exact == '1' then answers[n] = answers[n] .. ' ' .. token end
  else
    others[#others + 1] = n
    putOff[KEYS[n]] = true
  end
end
if #others == 0 then return table.concat(answers, '\n') end

-- include shared/many.lua
-- include shared/name.lua

-- Names that were loaded already: many claims may wait for the same one.
local names = {}

-- Claims stand in the order of their tokens: one that is raised moves back behind those that it passed.
local function raise(name, id, token, wanted)
  if wanted <= token then return token end
  clearFront(name, now)
  -- Whoever waits has a token already, which would be below this one.
  if name.waiter ~= '' then return token end
  if name.first == id then redis.call('HDEL', name.key, 'by') end
  unlink(name, id)
  name.token = math.max(name.token, wanted)
  name.held = math.max(name.held, wanted)
  name.holder = nil
  local before, behind = name.last, ''
  while before ~= '' do
    local v = redis.call('HMGET', name.key, 's:' .. before, '<:' .. before)
    local _, _, other = parseState(v[1])
    if other <= wanted then break end
    behind, before = before, before ~= name.first and v[2] or ''
  end
  if behind == '' then
    append(name, id)
  else
    redis.call('HSET', name.key, '>:' .. id, behind, '<:' .. behind, id)
    if before == '' then name.first = id else redis.call('HSET', name.key, '>:' .. before, id, '<:' .. id, before) end
  end
  return wanted
end

local function renew(key, request)
  local id, lease, wanted = string.match(request, '^([^\n]*)\n(%d*)\n(%d*)$')
  local name, state, stored, tombstone = names[key], nil, nil, nil
  if name then
    name.dropped = false
    local v = name.isString and {} or redis.call('HMGET', key, 's:' .. id, 'c:' .. id, 't:' .. id)
    state, stored, tombstone = v[1], v[2], v[3]
  else
    name, state, stored, tombstone = load(key, id)
    names[key] = name
    advance(name, now)
  end
  local units, ends, token, holds = live(name, id, state, now)
  if not units then return hasTombstone(tombstone, now) and 'revoked' or 'gone' end

  local asked = parseRequest(stored)
  name.changed = true
  if not holds then
    ends = now + asked.waiterLease
    lives(name, ends + asked.lease)
    redis.call('HSET', key, 's:' .. id, stateText(units, ends, token))
    clearFront(name, now)
    return queuedText(name, id, token, now)
  end
  ends = math.max(ends, now + (lease == '' and asked.lease or tonumber(lease) * 1000))
  if wanted ~= '' then token = raise(name, id, token, tonumber(wanted)) end
  -- Alone it is also the soonest to end: the first waiter is told when to ask again.
  if name.taken == units then name.soonest = ends end
  lives(name, ends)
  redis.call('HSET', key, 's:' .. id, stateText(units, ends, token))
  return grantedText(name, id, ends, token, asked.exact, now)
end

evenWhenFull()
for _, n in ipairs(others) do answers[n] = isolated(renew, KEYS[n], ARGV[n]) end
for _, name in pairs(names) do save(name, now, idleMs) end
return table.concat(answers, '\n')
