-- What is known about a name: first the name, then its claims by token, which is also the order of their arrival.
--
-- KEYS[1]  the name
-- ARGV[1]  how long the key outlives everything in it, in ms
--
-- returns name <capacity> <last token>
-- returns claim <units> <left ms> <token, or - while it waits> <for how many ms it has held or waited, or - when that is
--         not known>, then lines with the id, the owner and the data

-- Held alone: a look changes nothing.
local one = redis.pcall('GET', KEYS[1])
-- plain seen: one = false
local s, us, leaseMs, last, since, reserve, capacity, units, id, more = string.match(type(one) == 'string' and one or '',
  '^(%d+) (%d+) (%d+) (%d+)\n%d+ (%d+)%+?(%d*) %d (%d+) (%d+) [^\n]*\n([^\n]*)\n[^\n]*\n(.*)$')
local time = redis.call('TIME')
local leftMs = s and leaseMs + (s - time[1]) * 1000 + (us - time[2]) / 1000 or 0
if leftMs > 0 then
  local token = last - (tonumber(reserve) or 0)
  -- As name.lua says it.
  local at = tonumber(string.match(since, '^0(%d+)$')) or s * 1000000 + us
  if at == 0 then at = token end
  local forUs = at <= token and math.max(0, time[1] * 1000000 + time[2] - at)
  local forMs = forUs and string.format('%.0f', math.floor(forUs / 1000)) or '-'
  return { 'name ' .. capacity .. ' ' .. last, 'claim ' .. units .. ' ' .. string.format('%.0f', math.floor(leftMs)) .. ' '
    .. string.format('%.0f', token) .. ' ' .. forMs .. '\n' .. id .. '\n' .. more }
end

-- include shared/many.lua
-- include shared/name.lua

local now = time[1] * 1000000 + time[2]
evenWhenFull()
local name = load(KEYS[1], '')
advance(name, now)
save(name, now, tonumber(ARGV[1]))
if isIdle(name) then return {} end
local answers = { 'name ' .. whole(name.capacity) .. ' ' .. whole(name.token) }
local at = name.first
while at ~= '' do
  local v = redis.call('HMGET', name.key, 's:' .. at, 'c:' .. at, '>:' .. at)
  local units, ends, token = parseState(v[1])
  if ends > now then
    local since = string.match(v[2], '^%d+ 0(%d+)')
    answers[#answers + 1] = 'claim ' .. whole(units) .. ' ' .. whole(math.floor((ends - now) / 1000)) .. ' '
      .. (token <= name.held and whole(token) or '-') .. ' '
      .. (since and whole(math.max(0, math.floor((now - since) / 1000))) or '-') .. '\n' .. at .. '\n'
      .. string.match(v[2], '^[^\n]*\n[^\n]*\n[^\n]*\n(.*)$')
  end
  at = after(name, at, v[3])
end
return answers
