-- Ask, for claims that were made in the same moment: may each take its units, in order of arrival? The same id never
-- takes twice.
--
-- KEYS[n]  the name of the n-th claim. In a Cluster there is one
-- ARGV[n]  the first two lines of its request: "leaseMs tokenAtLeast exact capacity units wait waiterLeaseMs"; its id
-- ARGV[#KEYS + 1]  the rest of all requests: the channel of their client; their owner; and their data, where they have any
-- ARGV[#KEYS + 2]  how long a key outlives everything in it, in ms
--
-- The answers, a line each:
-- returns granted <left ms> <token> <floor> [<live tokens>]
-- returns queued <last token> <next ms, or - when not the first waiter> <owner of the first holder>
-- returns busy <owner of the first holder>
-- returns mismatch <capacity of the name>
-- returns gone
-- returns error <message>: this one's request failed

-- First the names that are idle: there is nothing to compare with. The functions below cost more than all of this, so they
-- are made only when somebody needs them.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rest, idleMs = ARGV[#KEYS + 1], tonumber(ARGV[#KEYS + 2])
local answers, others = {}, {}
for n = 1, #KEYS do
  local leaseMs, suggestion, exact, capacity, units, id =
    string.match(ARGV[n], '^(%d+) (%d+) (%d) (%d+) (%d+)[^\n]*\n(.*)$')
  local v = redis.pcall('HMGET', KEYS[n], 'one', 'marked', 'm:' .. id)
  local last = v[1] and tonumber(v[1]) or 0
  if v[3] then
    answers[n] = 'gone'
  elseif v.err or v[1] and last == 0 or tonumber(units) > tonumber(capacity) then
    others[#others + 1] = n
  else
    local token = math.max(last + 1, now, suggestion)
    -- Formatted, because Lua prints large numbers as 1.79e+15.
    redis.call('HSET', KEYS[n], 'one', string.format('%.0f %.0f\n%s\n%s', now + leaseMs * 1000, token, ARGV[n], rest))
    local keepMs = leaseMs + idleMs
    if v[2] then keepMs = math.max(keepMs, math.ceil((v[2] - now) / 1000)) end
    redis.call('PEXPIRE', KEYS[n], string.format('%.0f', keepMs))
    answers[n] = string.format('granted %s %.0f %.0f', leaseMs, token, token)
    if exact == '1' then answers[n] = answers[n] .. string.format(' %.0f', token) end
  end
end
if #others == 0 then return table.concat(answers, '\n') end

-- include shared/name.lua

local function claim(key, request)
  local asked = parseRequest(request)
  local id, units = asked.id, asked.units
  local name, state, known = load(key, id)
  settle(name, now)
  local itsUnits, ends, token = live(name, id, state, now)
  if itsUnits then
    local answer
    if token > 0 then
      answer = grantedText(name, id, ends, token, parseRequest(known).exact, now)
    else
      clearFront(name, now)
      answer = queuedText(name, id, now)
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
  if name.w1 == '' and name.taken + units <= name.capacity then
    ends = now + asked.lease
    token = grant(name, id, units, ends, asked.suggestion, now)
    lives(name, ends)
    save(name, now, idleMs, 'c:' .. id, request, 's:' .. id, stateText(units, ends, token))
    return grantedText(name, id, ends, token, asked.exact, now)
  end
  if asked.wait then
    ends = now + asked.waiterLease
    clearFront(name, now)
    append(name, id, 'w1', 'w2')
    -- When it is handed the name, its first sign of life gives it a whole lease: the key has to live that long.
    lives(name, ends + asked.lease)
    save(name, now, idleMs, 'c:' .. id, request, 's:' .. id, stateText(units, ends, 0))
    return queuedText(name, id, now)
  end
  save(name, now, idleMs)
  return 'busy ' .. holder(name)
end

for _, n in ipairs(others) do answers[n] = isolated(claim, KEYS[n], ARGV[n] .. '\n' .. rest) end
return table.concat(answers, '\n')
