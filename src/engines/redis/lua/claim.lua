-- Ask: may this claim take its units, in order of arrival? The same id never takes twice.
--
-- KEYS[1]  the name
-- ARGV[1]  the claim's id
-- ARGV[2]  units
-- ARGV[3]  capacity
-- ARGV[4]  1: queue when it is not our turn; 0: answer busy
-- ARGV[5]  what is asked, as it is stored: "leaseMs waiterLeaseMs exact tokenAtLeast channel", "\n" owner, and "\n" data
-- ARGV[6]  how long the key outlives everything in it, in ms
--
-- returns granted <left ms> <token> <floor> [<live tokens>]
-- returns queued <last token> <next ms, or - when not the first waiter> <owner of the first holder>
-- returns busy <owner of the first holder>
-- returns mismatch <capacity of the name>
-- returns gone

-- include shared/name.lua

local id, idleMs = ARGV[1], tonumber(ARGV[6])
local now = serverTime()
local name, state, stored, mark = load(KEYS[1], id)
if mark then return 'gone' end
settle(name, now)
local units, ends, token = live(name, id, state, now)

if units then
  local answer
  if token > 0 then
    answer = grantedText(name, id, ends, token, parseAsked(stored).exact, now)
  else
    answer = queuedText(name, id, now)
  end
  save(name, now, idleMs)
  return answer
end

local capacity = tonumber(ARGV[3])
if isIdle(name) then
  name.capacity = capacity
elseif name.capacity ~= capacity then
  save(name, now, idleMs)
  return 'mismatch ' .. whole(name.capacity)
end

local asked = parseAsked(ARGV[5])
units = tonumber(ARGV[2])
-- Nobody overtakes: with others waiting even a claim that would fit has to queue.
if name.w1 == '' and name.taken + units <= capacity then
  ends = now + asked.lease
  token = grant(name, id, units, ends, asked.suggestion, now)
  lives(name, ends)
  save(name, now, idleMs, 'c:' .. id, ARGV[5], 's:' .. id, stateText(units, ends, token))
  return grantedText(name, id, ends, token, asked.exact, now)
end
if ARGV[4] == '1' then
  ends = now + asked.waiterLease
  append(name, id, 'w1', 'w2')
  -- When it is handed the name, its first sign of life gives it a whole lease: the key has to live that long.
  lives(name, ends + asked.lease)
  save(name, now, idleMs, 'c:' .. id, ARGV[5], 's:' .. id, stateText(units, ends, 0))
  return queuedText(name, id, now)
end
save(name, now, idleMs)
return 'busy ' .. holder(name)
