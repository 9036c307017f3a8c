-- Write a small versioned value over the version that was read, once per operation.
--
-- KEYS[1]  the cell: a hash of value, version, the highest version ever (last), and what recent operations did (o:<id>,
--          in the order x:<n> from op1 to op2)
-- ARGV[1]  the operation's id
-- ARGV[2]  the version that must be there; 0 for none
-- ARGV[3]  1: write ARGV[4]; 0: remove the cell
-- ARGV[4]  the value
-- ARGV[5]  the channel on which changes are published
-- ARGV[6]  how long an operation is remembered, in ms
-- ARGV[7]  how long the last version is remembered after a removal, in ms
--
-- returns written <version>, then a line with the value where there is one
-- returns conflict <version>, then a line with the value where there is one

local key, operation = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Lua prints large numbers as 1.79e+15.
local function whole(number)
  return string.format('%.0f', number)
end

local function asLines(version, value)
  return value and version .. '\n' .. value or '0'
end

local v = redis.call('HMGET', key, 'version', 'value', 'last', 'o:' .. operation, 'op1', 'op2')
if v[4] then return string.match(v[4], '^%d+ (.*)$') end

-- A conflict is remembered, too: a copy that comes late must not find what it expected after all.
local first, last = tonumber(v[5] or '1'), tonumber(v[6] or '0') + 1
local function remember(answer)
  -- Each operation clears away two old ones.
  for _ = 1, 2 do
    local old = redis.call('HGET', key, 'x:' .. whole(first))
    if not old then break end
    local forgetAt = string.match(redis.call('HGET', key, 'o:' .. old), '^%d+')
    if tonumber(forgetAt) > now then break end
    redis.call('HDEL', key, 'x:' .. whole(first), 'o:' .. old)
    first = first + 1
  end
  local forgetAt = now + tonumber(ARGV[6]) * 1000
  redis.call('HSET', key, 'op1', whole(first), 'op2', whole(last),
    'x:' .. whole(last), operation, 'o:' .. operation, whole(forgetAt) .. ' ' .. answer)
end

local function expireWhenForgotten()
  redis.call('PEXPIRE', key, whole(math.max(tonumber(ARGV[6]), tonumber(ARGV[7]))))
end

if (v[1] or '0') ~= ARGV[2] then
  local answer = 'conflict ' .. asLines(v[1], v[2])
  remember(answer)
  if not v[1] then expireWhenForgotten() end
  return answer
end

local version = math.max(tonumber(v[3] or '0') + 1, now)
local text = asLines(whole(version), ARGV[3] == '1' and ARGV[4])
local answer = 'written ' .. text
remember(answer)
redis.call('HSET', key, 'last', whole(version))
if ARGV[3] == '1' then
  redis.call('HSET', key, 'version', whole(version), 'value', ARGV[4])
  redis.call('PERSIST', key)
else
  redis.call('HDEL', key, 'version', 'value')
  expireWhenForgotten()
end
redis.call('PUBLISH', ARGV[5], text)
return answer
