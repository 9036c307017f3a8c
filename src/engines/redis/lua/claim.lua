-- Ask, for claims that were made in the same moment: may each take its units, in order of arrival? The same id never
-- takes twice.
--
-- KEYS[n]  the name of the n-th claim. In a Cluster there is one
-- ARGV[n]  how long the key lives from now on if the claim is granted, in ms (texts cost less than numbers here): its lease, and
--          how long a key outlives everything in it; a space, and its request, in lines: "leaseMs tokenAtLeast exact capacity
--          units wait waiterLeaseMs"; its id; the channel of its client; its owner; and its data, where it has any.
--          "tokenAtLeast+reserve" where it keeps tokens above its own
-- ARGV[#KEYS + 1]  1 in a Cluster, where no name is a string: see shared/name.lua
--
-- The answers, a line each:
-- returns granted <left ms> <token> <floor> [<live tokens>]
-- returns queued <token> <next ms, or - when not the first waiter> <owner of the first holder>; on arrival, after a tab, the
--         claim directly before it, if that is alive and of the same client
-- returns busy <next ms> <owner of the first holder>
-- returns mismatch <capacity of the name>
-- returns gone
-- returns error <message>: this one's request failed

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local inCluster = ARGV[#KEYS + 1]
-- plain string: inCluster = '1'

-- The last token of a name that nobody has asked for. One that is idle has as many digits, and everything else is longer.
local NEW = '0000000000000000'

-- First the usual case: the name is idle, and who asks holds it alone. Every command and every function that is made
-- costs as much as a SET, so there are few of them, and more only when somebody needs them. For the same reason texts
-- are joined, and few numbers read or written out, as %d where that fits into 32 bits: %.0f takes three times as long.
-- A name where one had to be put off puts off all that follow there: nobody is decided before who asked earlier.
-- (A line "-- plain <path>: <code>" switches a fast path off in a test build, which compares it with the plain one.)
local answers, others, putOff, seen = {}, nil, nil, nil
for n = 1, #KEYS do
  local key = KEYS[n]
  -- Most take everything there is, and ask for nothing else.
  local keepMs, at, leaseMs, suggestion = string.match(ARGV[n], '^(%d+) ()(%d+) (%d+) 0 (%d+) %5 ')
  local reserve, exact, fits = '', '0', true
  if not keepMs then
    local capacity, units
    keepMs, at, leaseMs, suggestion, reserve, exact, capacity, units =
      string.match(ARGV[n], '^(%d+) ()(%d+) (%d+)%+?(%d*) (%d) (%d+) (%d+) ')
    fits = tonumber(units) <= tonumber(capacity)
  end
  local one, fields = not (putOff and putOff[key]) and (redis.pcall('GET', key) or NEW), nil
  if type(one) == 'table' then
    local id = string.match(ARGV[n], '\n([^\n]*)')
    fields = redis.pcall('HMGET', key, 'one', 'tombstonesEnd', 't:' .. id, 's:' .. id, 'by')
    one = fields[1]
  end
  -- plain idle: one, fields = false, nil
  local last = one and #one == #NEW and tonumber(one)
  local tombstonesEnd = fields and fields[2]
  if last and tombstonesEnd then
    local tombstonesMs = math.ceil((tombstonesEnd - now) / 1000)
    if tombstonesMs > tonumber(keepMs) then keepMs = string.format('%.0f', tombstonesMs) end
    if fields[3] and tonumber(fields[3]) > now then answers[n] = 'gone' end
    -- All tombstones are over: they are cleared away below.
    if tombstonesMs <= 0 then last = nil end
  end
  if last and fits and not answers[n] then
    local token = suggestion
    if suggestion - last <= 0 or suggestion - now < 0 then
      token = last < now and time[1] .. string.sub('00000' .. time[2], -6) or string.format('%.0f', last + 1)
    end
    local upTo = reserve == '' and token or string.format('%.0f', token + reserve)
    local text = time[1] .. ' ' .. time[2] .. ' ' .. leaseMs .. ' ' .. upTo .. '\n' .. string.sub(ARGV[n], at)
    if tombstonesEnd or inCluster and (fields or one == NEW) then
      redis.call('HSET', key, 'one', text)
      redis.call('PEXPIRE', key, keepMs)
    else
      redis.call('SET', key, text, 'PX', keepMs)
    end
    answers[n] = 'granted ' .. leaseMs .. ' ' .. token .. ' ' .. token
    if exact == '1' then answers[n] = answers[n] .. ' ' .. token end
  end
  if not answers[n] then
    others, putOff, seen = others or {}, putOff or {}, seen or {}
    others[#others + 1] = n
    putOff[key] = true
    seen[n] = fields or one
  end
end
if not others then return #KEYS == 1 and answers[1] or table.concat(answers, '\n') end

-- include shared/many.lua

-- How long a key outlives everything in it: all of them have that in common.
local n = others[1]
local firstKeepMs, firstLeaseMs = string.match(ARGV[n], '^(%d+) (%d+)')
local idleMs = firstKeepMs - firstLeaseMs
local nowText = time[1] .. string.sub('00000' .. time[2], -6)

-- Stand behind others at a name where everything is taken. Nil, and nothing done, when there is more to it than that.
local function queue(key, request, id, channel, leaseMs, suggestion, reserve, asked, units, waiterLeaseMs, one, tombstonesEnd,
  by)
  local capacity, taken, upTo, held, soonest, lives, first, waiter, last = string.match(one, MANY)
  if capacity ~= asked or tonumber(soonest) <= now then return nil end
  -- Tombstones that are over, to be cleared away.
  if tombstonesEnd and tonumber(tombstonesEnd) <= now then return nil end
  if waiter == '' and taken + units <= tonumber(capacity) then return nil end
  local whose, holder = string.match(by, '^([^\n]*)\n[^\n]*\n([^\n]*)')
  if whose ~= first then return nil end
  -- All holders are alive. Of those that wait the first must be, and the last is named only when it is.
  local v = redis.call('HMGET', key, 'c:' .. last, 's:' .. last, waiter == '' and '' or 's:' .. waiter)
  if v[3] and tonumber(string.match(v[3], '^%d+ (%d+)')) <= now then return nil end
  local isAlive = tonumber(string.match(v[2], '^%d+ (%d+)')) > now
  local isOurs = channel ~= '' and string.match(v[1], '^[^\n]*\n[^\n]*\n([^\n]*)') == channel
  local nextMs = waiter == '' and string.format('%.0f', math.ceil((soonest - now) / 1000)) or '-'
  local minted = math.max(upTo + 1, now, suggestion)
  local token = string.format('%.0f', minted)
  upTo = reserve == '' and token or string.format('%.0f', minted + reserve)
  local ends = now + waiterLeaseMs * 1000
  local needed = ends + leaseMs * 1000
  if needed > tonumber(lives) then
    -- With a second to spare, so that on a busy name few claims have to move the key's own end.
    lives = string.format('%.0f', needed + 1000000)
    local tombstonesMs = math.ceil(((tombstonesEnd or 0) - now) / 1000)
    redis.call('PEXPIRE', key, math.max(math.ceil((lives - now) / 1000) + idleMs, tombstonesMs))
  end
  redis.call('HSET', key, 'one',
    manyText(capacity, taken, upTo, held, soonest, lives, first, waiter == '' and id or waiter, id),
    'c:' .. id, leaseMs .. ' 0' .. nowText .. string.sub(request, #leaseMs + #suggestion + 2),
    's:' .. id, units .. string.format(' %.0f ', ends) .. token, '<:' .. id, last, '>:' .. last, id)
  return 'queued ' .. token .. ' ' .. nextMs .. ' ' .. holder .. (isAlive and isOurs and '\t' .. last or '')
end

-- Somebody holds it alone, nobody waits, and a claim that does not wait finds no room. Nil when there is more to it.
local function busy(id, asked, units, one)
  local s, us, leaseMs, capacity, taken, holder, owner =
    string.match(one, '^(%d+) (%d+) (%d+) [^\n]*\n%d+ %S+ %d (%d+) (%d+) [^\n]*\n([^\n]*)\n[^\n]*\n([^\n]*)')
  if capacity ~= asked or holder == id or taken + units <= tonumber(capacity) then return nil end
  local leftMs = leaseMs + (s - time[1]) * 1000 + (us - time[2]) / 1000
  return leftMs > 0 and 'busy ' .. string.format('%d', math.ceil(leftMs)) .. ' ' .. owner or nil
end

-- Then what else is common: everything is taken.
local rare = {}
putOff = {}
for _, n in ipairs(others) do
  local key = KEYS[n]
  local request, leaseMs, suggestion, reserve, capacity, units, wait, waiterLeaseMs, id, channel =
    string.match(ARGV[n], '^%d+ ((%d+) (%d+)%+?(%d*) %d (%d+) (%d+) (%d) (%d+)\n([^\n]*)\n([^\n]*).*)$')
  -- What was read above still stands: whoever asked for the same name later was put off. Those have to read it now.
  local v = putOff[key] and {} or seen[n]
    or redis.pcall('HMGET', key, 'one', 'tombstonesEnd', 't:' .. id, 's:' .. id, 'by')
  if type(v) == 'string' then v = { v } end
  -- plain taken: v = {}
  if v[3] and tonumber(v[3]) > now then
    answers[n] = 'gone'
  elseif wait == '0' then
    answers[n] = v[1] and busy(id, capacity, units, v[1])
  elseif v[5] and not v[4] then
    answers[n] = queue(key, request, id, channel, leaseMs, suggestion, reserve, capacity, units, waiterLeaseMs, v[1], v[2],
      v[5])
  end
  if not answers[n] then
    rare[#rare + 1] = n
    putOff[key] = true
  end
end
if #rare == 0 then return table.concat(answers, '\n') end

-- include shared/name.lua

-- The claim behind which the next one will stand, after a tab, if it is alive and of this client.
local function ahead(name, channel)
  local id = name.last
  if id == '' or channel == '' then return '' end
  local v = redis.call('HMGET', name.key, 's:' .. id, 'c:' .. id)
  local _, ends = parseState(v[1])
  return ends > now and parseRequest(v[2]).channel == channel and '\t' .. id or ''
end

local function claim(key, request)
  local asked = parseRequest(request)
  local id, units = asked.id, asked.units
  local name, state, known, tombstone = load(key, id)
  if hasTombstone(tombstone, now) then
    save(name, now, idleMs)
    return 'gone'
  end
  advance(name, now)
  local itsUnits, ends, token, holds = live(name, id, state, now)
  if itsUnits then
    local answer
    if holds then
      answer = grantedText(name, id, ends, token, parseRequest(known).exact, now)
    else
      clearFront(name, now)
      answer = queuedText(name, id, token, now)
    end
    -- Written even when nothing changed: with ack, an answer counts when the replicas have what it says.
    name.changed = true
    save(name, now, idleMs)
    return answer
  end

  if isIdle(name) then
    name.capacity = asked.capacity
  elseif name.capacity ~= asked.capacity then
    save(name, now, idleMs)
    return 'mismatch ' .. whole(name.capacity)
  end
  -- Nobody overtakes: with others waiting even a claim that would fit has to queue.
  if name.waiter == '' and name.taken + units <= name.capacity then
    ends = now + asked.lease
    token = mint(name, asked, now)
    append(name, id)
    hold(name, units, ends, token)
    lives(name, ends)
    save(name, now, idleMs, 'c:' .. id, withSince(request, now), 's:' .. id, stateText(units, ends, token))
    return grantedText(name, id, ends, token, asked.exact, now)
  end
  if asked.wait then
    ends = now + asked.waiterLease
    clearFront(name, now)
    local before = ahead(name, asked.channel)
    token = mint(name, asked, now)
    append(name, id)
    if name.waiter == '' then name.waiter = id end
    -- When it is handed the name, its first heartbeat gives it a whole lease: the key has to live that long.
    lives(name, ends + asked.lease)
    save(name, now, idleMs, 'c:' .. id, withSince(request, now), 's:' .. id, stateText(units, ends, token))
    return queuedText(name, id, token, now) .. before
  end
  save(name, now, idleMs)
  return 'busy ' .. untilNext(name, now) .. ' ' .. holder(name)
end

for _, n in ipairs(rare) do answers[n] = isolated(claim, KEYS[n], string.match(ARGV[n], ' (.*)')) end
return table.concat(answers, '\n')
