-- Give back holds and withdraw waiting claims, and hand over to whoever is next in the same step.
--
-- KEYS[n]  the name of the n-th claim. In a Cluster there is one
-- ARGV[n]  1 to leave a tombstone that makes late copies of the claim answer gone, 0 when there can be none, 2 when there is one
--          copy of it: found here it needs no tombstone; how long a key outlives everything in it, and how long a tombstone is
--          kept, in ms, eleven digits each; and directly behind, as it is stored when nobody waits, the claim's id, and on the
--          next line the channel of the client that releases; on the last line the claim that this has let go on already, if
--          there is one: granted here it needs no push
--
-- The answers, a line each:
-- returns released
-- returns gone
-- returns revoked: gone, and its tombstone was there before, so somebody released it
-- returns error <message>: this one's request failed

local time = redis.call('TIME')

-- First what its own client gives back while nobody waits: the last token stays. The key's expiry stays, too: it outlives
-- the lease. What is below costs more than all of this, so it is made only when somebody needs it.
-- A name where one had to be put off puts off all that follow there: none is decided before what was asked earlier.
local answers, others, putOff = {}, nil, nil
for n = 1, #KEYS do
  local one = not (putOff and putOff[KEYS[n]]) and string.byte(ARGV[n]) ~= 49 and redis.pcall('GET', KEYS[n])
  local isHash = type(one) == 'table'
  if isHash then one = redis.pcall('HGET', KEYS[n], 'one') end
  if type(one) == 'string' then
    local mine = string.sub(ARGV[n], 24)
    local _, last, s, us, leaseMs, token = string.find(one, '^(%d+) (%d+) (%d+) (%d+)\n[^\n]*\n')
    -- plain own: last = nil
    -- Most have begun in this very second, and last for longer.
    if last and #token >= 16 and string.find(one, mine, last + 1, true) == last + 1
      and (s == time[1] and #leaseMs > 3 or leaseMs + (s - time[1]) * 1000 + (us - time[2]) / 1000 > 0) then
      local written
      if isHash then
        written = redis.pcall('HSET', KEYS[n], 'one', token)
      else
        written = redis.pcall('SET', KEYS[n], token, 'KEEPTTL')
      end
      -- Refused when the server's memory is full: the way below begins with what is let through even then.
      if type(written) == 'number' or written.ok then answers[n] = 'released' end
    end
  end
  if not answers[n] then
    others, putOff = others or {}, putOff or {}
    others[n] = one or ''
    putOff[KEYS[n]] = true
  end
end
if not others then return #KEYS == 1 and answers[1] or table.concat(answers, '\n') end

-- include shared/many.lua

local now = time[1] * 1000000 + time[2]
local REQUEST = '^(%d)' .. string.rep('%d', 22) .. '([^\n]*)\n([^\n]*)\n(.*)$'

-- From the only holder to the first waiter, who takes everything. False, and nothing done, when there is more to it.
local function handOver(key, id, channel, to, one)
  local capacity, _, upTo, _, soonest, lives, first, waiter, last = string.match(one, MANY)
  if first ~= id or waiter == '' or tonumber(soonest) <= now then return false end
  local v = redis.call('HMGET', key, 's:' .. waiter, '<:' .. waiter, '>:' .. waiter, 'c:' .. waiter, 'by')
  local units, ends, token = string.match(v[1], '^(%d+) (%d+) (%d+)$')
  if v[2] ~= id or units ~= capacity or tonumber(ends) <= now then return false end
  local mine = id .. '\n' .. channel .. '\n'
  if string.sub(v[5] or '', 1, #mine) ~= mine then return false end
  local leaseMs, tail, exact, by, itsChannel =
    string.match(v[4], '^(%d+) %d+(%+?%d* (%d)[^\n]*\n([^\n]*\n([^\n]*).*))$')
  redis.call('HDEL', key, 's:' .. id, 'c:' .. id, '<:' .. id, '>:' .. id)
  -- Its waiter lease stays as it is: the confirmation starts the lease proper.
  redis.call('HSET', key, 'one',
    manyText(capacity, units, upTo, token, ends, lives, waiter, waiter ~= last and v[3] or '', last), 'by', by,
    'c:' .. waiter, leaseMs .. ' 0' .. time[1] .. string.sub('00000' .. time[2], -6) .. tail)
  if itsChannel ~= '' and waiter ~= to then
    local fence = token .. ' ' .. token .. (exact == '1' and ' ' .. token or '')
    redis.call('PUBLISH', itsChannel, 'granted\n' .. waiter .. '\n' .. key .. '\n' .. fence)
  end
  return true
end

local rare = {}
putOff = {}
for n = 1, #KEYS do
  local key, one = KEYS[n], others[n]
  if one then
    local code, id, channel, to = string.match(ARGV[n], REQUEST)
    -- It was put off behind another one of this name, which has been decided by now.
    if one == '' and code ~= '1' and not putOff[key] then one = redis.pcall('HGET', key, 'one') or '' end
    -- plain handOver: one = true
    if type(one) == 'string' and not putOff[key] and handOver(key, id, channel, to, one) then
      answers[n] = 'released'
    else
      rare[#rare + 1] = n
      putOff[key] = true
    end
  end
end
if #rare == 0 then return table.concat(answers, '\n') end

-- include shared/name.lua

local function leaveTombstone(name, id, before, tombstoneMs)
  name.changed = true
  name.longer = true
  name.tombstonesEnd = now + tombstoneMs * 1000
  toHash(name)
  local first, last = clearTombstones(name, now)
  if not hasTombstone(before, now) then
    last = last + 1
    redis.call('HSET', name.key, 'x:' .. whole(last), id)
  end
  redis.call('HSET', name.key, 't:' .. id, whole(name.tombstonesEnd), 'tombstone1', whole(first), 'tombstone2', whole(last),
    'tombstonesEnd', whole(name.tombstonesEnd))
end

local function release(key, request)
  local code, id, channel, to = string.match(request, REQUEST)
  local idleMs, tombstoneMs = tonumber(string.sub(request, 2, 12)), tonumber(string.sub(request, 13, 23))
  local name, state, stored, tombstone = load(key, id)
  advance(name, now)
  local units, _, token = live(name, id, state, now)
  if units then
    drop(name, id, units, token)
    advance(name, now, to)
    local owner = string.match(stored, '^[^\n]*\n[^\n]*\n([^\n]*)')
    -- Released by somebody else than its owner, to whom that is pushed.
    if owner ~= channel then push(owner, 'lost', id, name, '') end
  end
  if code == '1' or code == '2' and not units then leaveTombstone(name, id, tombstone, tombstoneMs) end
  save(name, now, idleMs)
  if units then return 'released' end
  return hasTombstone(tombstone, now) and 'revoked' or 'gone'
end

evenWhenFull()
for _, n in ipairs(rare) do answers[n] = isolated(release, KEYS[n], ARGV[n]) end
return table.concat(answers, '\n')
