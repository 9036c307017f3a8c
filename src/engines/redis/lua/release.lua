-- Give back holds and withdraw waiting claims, and hand over to whoever is next in the same step.
--
-- KEYS[n]  the name of the n-th claim. In a Cluster there is one
-- ARGV[n]  1 to leave a mark that makes late copies of the claim answer gone, 0 when there can be none; right after that the
--          claim's id
-- ARGV[#KEYS + 1]  the channel of the client that releases
-- ARGV[#KEYS + 2]  how long a key outlives everything in it, in ms
-- ARGV[#KEYS + 3]  how long a mark is kept, in ms
--
-- The answers, a line each:
-- returns released
-- returns gone
-- returns error <message>: this one's request failed

-- First what nobody else waits for, given back by its own client. The key's expiry stays: it outlives the lease. The
-- functions below cost more than all of this, so they are made only when somebody needs them.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local channel, idleMs, markMs = ARGV[#KEYS + 1], tonumber(ARGV[#KEYS + 2]), tonumber(ARGV[#KEYS + 3])
local answers, others = {}, {}
for n = 1, #KEYS do
  local one = string.byte(ARGV[n]) == 48 and redis.pcall('HGET', KEYS[n], 'one')
  local mine = string.sub(ARGV[n], 2) .. '\n' .. channel .. '\n'
  local _, last, ends, token = string.find(type(one) == 'string' and one or '', '^(%d+) (%d+)\n[^\n]*\n')
  if ends and tonumber(ends) > now and string.sub(one, last + 1, last + #mine) == mine then
    redis.call('HSET', KEYS[n], 'one', token)
    answers[n] = 'released'
  else
    others[#others + 1] = n
  end
end
if #others == 0 then return table.concat(answers, '\n') end

-- include shared/name.lua

local function leaveMark(name, id, marked)
  name.changed = true
  name.marked = now + markMs * 1000
  -- Each mark clears away two old ones, so that a busy name keeps those of the last minute and no more.
  for _ = 1, 2 do
    local old = redis.call('HGET', name.key, 'x:' .. whole(name.mark1))
    if not old then break end
    if tonumber(redis.call('HGET', name.key, 'm:' .. old) or 0) > now then break end
    redis.call('HDEL', name.key, 'x:' .. whole(name.mark1), 'm:' .. old)
    name.mark1 = name.mark1 + 1
  end
  redis.call('HSET', name.key, 'm:' .. id, whole(name.marked), 'mark1', whole(name.mark1), 'marked', whole(name.marked))
  if marked then return end
  name.mark2 = name.mark2 + 1
  redis.call('HSET', name.key, 'x:' .. whole(name.mark2), id, 'mark2', whole(name.mark2))
end

local function release(key, request)
  local mark, id = string.match(request, '^(%d)(.*)$')
  local name, state, stored, marked = load(key, id)
  settle(name, now)
  local units, _, token = live(name, id, state, now)
  if units then
    drop(name, id, units, token)
    settle(name, now)
    local owner = string.match(stored, '^[^\n]*\n[^\n]*\n([^\n]*)')
    -- Taken out by somebody else than its owner, who is told.
    if owner ~= channel then push(owner, 'lost', id, name, '') end
  end
  if mark == '1' then leaveMark(name, id, marked) end
  save(name, now, idleMs)
  return units and 'released' or 'gone'
end

for _, n in ipairs(others) do answers[n] = isolated(release, KEYS[n], ARGV[n]) end
return table.concat(answers, '\n')
