// Compiled from lua/*.lua by scripts/compile-lua.mjs (npm run scripts). Do not edit.

const MANY =
  `local MANY = '^many (%d+) (%d+) (%d+) (%d+) (%S+) (%d+)\\n([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)$'
local function manyText(capacity, taken, token, held, soonest, lives, first, waiter, last)
return 'many ' .. capacity .. ' ' .. taken .. ' ' .. token .. ' ' .. held .. ' ' .. soonest .. ' ' .. lives .. '\\n' .. first
.. '\\n' .. waiter .. '\\n' .. last
end`;

const NAME =
  `local function evenWhenFull()
redis.pcall('HDEL', KEYS[1], '')
end
local function whole(number)
return string.format('%.0f', number)
end
local function serverTime()
local time = redis.call('TIME')
return time[1] * 1000000 + time[2]
end
local function parseRequest(request)
local lease, suggestion, reserve, exact, capacity, units, wait, waiterLease, id, channel, owner =
string.match(request, '^(%d+) (%d+)%+?(%d*) (%d) (%d+) (%d+) (%d) (%d+)\\n([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)')
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
local function parseState(state)
local units, ends, token = string.match(state, '^(%d+) (%d+) (%d+)$')
return tonumber(units), tonumber(ends), tonumber(token)
end
local function stateText(units, ends, token)
return whole(units) .. ' ' .. whole(ends) .. ' ' .. whole(token)
end
local function withSince(request, since)
local leaseMs, tail = string.match(request, '^(%d+) %d+(.*)$')
return leaseMs .. ' 0' .. whole(since) .. tail
end
local function toHash(name)
if not name.isString then return end
redis.call('DEL', name.key)
name.isString = false
name.longer = true
end
local function load(key, id)
local v = redis.pcall('HMGET', key, 'one', 'tombstonesEnd', 's:' .. id, 'c:' .. id, 't:' .. id)
local isString = v.err ~= nil
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
local second, us, leaseMs, upTo, request = string.match(one, '^(%d+) (%d+) (%d+) (%d+)\\n(.*)$')
if isString and not (request or #one >= 16 and not string.find(one, '%D')) then redis.call('HGET', key, 'one') end
name.token = tonumber(upTo or one)
if request then
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
redis.call('HSET', key, 's:' .. its.id, itsState, 'c:' .. its.id, request, 'by', string.match(request, '\\n(.*)$'))
if its.id == id then state, asked = itsState, request end
end
return name, state, asked, v[5]
end
local function hasTombstone(tombstone, now)
return tombstone and tonumber(tombstone) > now
end
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
local function save(name, now, idleMs, ...)
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
local function lives(name, ends)
if ends <= name.lives then return end
name.lives = ends + 1000000
name.longer = true
end
local function after(name, id, link)
return id ~= name.last and link or ''
end
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
local function drop(name, id, units, token, link)
local holds = token <= name.held
local by = holds and name.first == id and 'by' or ''
unlink(name, id, link)
if holds then
name.taken = name.taken - units
if name.first == name.waiter then name.soonest = math.huge end
end
redis.call('HDEL', name.key, 's:' .. id, 'c:' .. id, '<:' .. id, '>:' .. id, by)
name.dropped = true
end
local function mint(name, asked, now)
local token = math.max(name.token + 1, now, asked.suggestion)
name.token = token + asked.reserve
return token
end
local function hold(name, units, ends, token)
name.taken = name.taken + units
name.held = token
name.soonest = math.min(name.soonest, ends)
name.changed = true
end
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
local function push(channel, kind, id, name, more)
if channel ~= '' then redis.call('PUBLISH', channel, kind .. '\\n' .. id .. '\\n' .. name.key .. '\\n' .. more) end
end
local function advance(name, now, to)
if now >= name.soonest then expireHolders(name, now) end
while name.waiter ~= '' and name.taken < name.capacity do
local id = name.waiter
local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id, 'c:' .. id)
local units, ends, token = parseState(v[1])
if ends <= now then
drop(name, id, units, token, v[2])
elseif name.taken + units <= name.capacity then
local exact, by, channel = string.match(v[3], '^%d+ %S+ (%d)[^\\n]*\\n([^\\n]*\\n([^\\n]*).*)$')
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
local function live(name, id, state, now)
if name.dropped then state = redis.call('HGET', name.key, 's:' .. id) end
if not state then return nil end
local units, ends, token = parseState(state)
if ends > now then return units, ends, token, token <= name.held end
drop(name, id, units, token)
advance(name, now)
return nil
end
local function holder(name)
if name.first == name.waiter then return '' end
if name.holder == nil then
name.holder = parseRequest(redis.call('HGET', name.key, 'c:' .. name.first)).owner
end
return name.holder
end
local function grantedText(name, id, ends, token, exact, now)
return 'granted ' .. whole(math.floor((ends - now) / 1000)) .. ' ' .. whole(token) .. ' ' .. fence(name, id, token, exact)
end
local function clearFront(name, now)
while name.waiter ~= '' do
local units, ends, token = parseState(redis.call('HGET', name.key, 's:' .. name.waiter))
if ends > now then return end
drop(name, name.waiter, units, token)
end
end
local function untilNext(name, now)
return name.soonest < math.huge and whole(math.ceil((name.soonest - now) / 1000)) or '0'
end
local function queuedText(name, id, token, now)
local nextMs = name.waiter == id and untilNext(name, now) or '-'
return 'queued ' .. whole(token) .. ' ' .. nextMs .. ' ' .. holder(name)
end
local function isolated(verb, key, request)
local fine, answer = pcall(verb, key, request)
if fine then return answer end
return 'error ' .. string.gsub(type(answer) == 'table' and answer.err or tostring(answer), '\\n', ' ')
end`;

const REDISSON =
  `local function ownField(key, id)
for _, field in ipairs(redis.call('HKEYS', key)) do
local owner, token = string.match(field, '^holdfast:(.*):(%d+)$')
if owner == id then return field, token end
end
end`;

const WAKE =
  `local function wake(channel, message, sharded)
redis.call('PUBLISH', channel, message)
if sharded == '1' then redis.pcall('SPUBLISH', channel, message) end
end`;

/** The pieces of a script, joined by line ends, are what its hash is of. What scripts share stands here once. */
export const SCRIPTS = {
  capacity: {
    sha: "f9a0a6245f0c4fb350631d3781eb30f8889bb0e5",
    pieces: [MANY, NAME, `local from, to, idleMs = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = serverTime()
evenWhenFull()
local name = load(KEYS[1], '')
advance(name, now)
local answer = 'set'
if not isIdle(name) and name.capacity ~= to then
if name.capacity ~= from then
answer = 'mismatch ' .. whole(name.capacity)
else
name.capacity = to
name.changed = true
local at = name.waiter
while at ~= '' do
local id = at
local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id, 'c:' .. id)
local units, ends, token = parseState(v[1])
at = after(name, id, v[2])
if units > to then
drop(name, id, units, token, v[2])
if ends > now then push(parseRequest(v[3]).channel, 'lost', id, name, '') end
end
end
advance(name, now)
end
end
save(name, now, idleMs)
return answer`],
  },
  cellWrite: {
    sha: "b898fa1ce3e87434fab83460da90cd90961ff683",
    pieces: [`local key, operation = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function whole(number)
return string.format('%.0f', number)
end
local function asLines(version, value)
return value and version .. '\\n' .. value or '0'
end
local v = redis.call('HMGET', key, 'version', 'value', 'last', 'o:' .. operation, 'op1', 'op2')
if v[4] then return string.match(v[4], '^%d+ (.*)$') end
local first, last = tonumber(v[5] or '1'), tonumber(v[6] or '0') + 1
local function remember(answer)
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
return answer`],
  },
  claim: {
    sha: "9f1dde500d70a9251ed719783e27dbda679e7b46",
    pieces: [`local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local inCluster = ARGV[#KEYS + 1]
local NEW = '0000000000000000'
local answers, others, putOff, seen = {}, nil, nil, nil
for n = 1, #KEYS do
local key = KEYS[n]
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
local id = string.match(ARGV[n], '\\n([^\\n]*)')
fields = redis.pcall('HMGET', key, 'one', 'tombstonesEnd', 't:' .. id, 's:' .. id, 'by')
one = fields[1]
end
local last = one and #one == #NEW and tonumber(one)
local tombstonesEnd = fields and fields[2]
if last and tombstonesEnd then
local tombstonesMs = math.ceil((tombstonesEnd - now) / 1000)
if tombstonesMs > tonumber(keepMs) then keepMs = string.format('%.0f', tombstonesMs) end
if fields[3] and tonumber(fields[3]) > now then answers[n] = 'gone' end
if tombstonesMs <= 0 then last = nil end
end
if last and fits and not answers[n] then
local token = suggestion
if suggestion - last <= 0 or suggestion - now < 0 then
token = last < now and time[1] .. string.sub('00000' .. time[2], -6) or string.format('%.0f', last + 1)
end
local upTo = reserve == '' and token or string.format('%.0f', token + reserve)
local text = time[1] .. ' ' .. time[2] .. ' ' .. leaseMs .. ' ' .. upTo .. '\\n' .. string.sub(ARGV[n], at)
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
if not others then return #KEYS == 1 and answers[1] or table.concat(answers, '\\n') end`, MANY, `local n = others[1]
local firstKeepMs, firstLeaseMs = string.match(ARGV[n], '^(%d+) (%d+)')
local idleMs = firstKeepMs - firstLeaseMs
local nowText = time[1] .. string.sub('00000' .. time[2], -6)
local function queue(key, request, id, channel, leaseMs, suggestion, reserve, asked, units, waiterLeaseMs, one, tombstonesEnd,
by)
local capacity, taken, upTo, held, soonest, lives, first, waiter, last = string.match(one, MANY)
if capacity ~= asked or tonumber(soonest) <= now then return nil end
if tombstonesEnd and tonumber(tombstonesEnd) <= now then return nil end
if waiter == '' and taken + units <= tonumber(capacity) then return nil end
local whose, holder = string.match(by, '^([^\\n]*)\\n[^\\n]*\\n([^\\n]*)')
if whose ~= first then return nil end
local v = redis.call('HMGET', key, 'c:' .. last, 's:' .. last, waiter == '' and '' or 's:' .. waiter)
if v[3] and tonumber(string.match(v[3], '^%d+ (%d+)')) <= now then return nil end
local isAlive = tonumber(string.match(v[2], '^%d+ (%d+)')) > now
local isOurs = channel ~= '' and string.match(v[1], '^[^\\n]*\\n[^\\n]*\\n([^\\n]*)') == channel
local nextMs = waiter == '' and string.format('%.0f', math.ceil((soonest - now) / 1000)) or '-'
local minted = math.max(upTo + 1, now, suggestion)
local token = string.format('%.0f', minted)
upTo = reserve == '' and token or string.format('%.0f', minted + reserve)
local ends = now + waiterLeaseMs * 1000
local needed = ends + leaseMs * 1000
if needed > tonumber(lives) then
lives = string.format('%.0f', needed + 1000000)
local tombstonesMs = math.ceil(((tombstonesEnd or 0) - now) / 1000)
redis.call('PEXPIRE', key, math.max(math.ceil((lives - now) / 1000) + idleMs, tombstonesMs))
end
redis.call('HSET', key, 'one',
manyText(capacity, taken, upTo, held, soonest, lives, first, waiter == '' and id or waiter, id),
'c:' .. id, leaseMs .. ' 0' .. nowText .. string.sub(request, #leaseMs + #suggestion + 2),
's:' .. id, units .. string.format(' %.0f ', ends) .. token, '<:' .. id, last, '>:' .. last, id)
return 'queued ' .. token .. ' ' .. nextMs .. ' ' .. holder .. (isAlive and isOurs and '\\t' .. last or '')
end
local function busy(id, asked, units, one)
local s, us, leaseMs, capacity, taken, holder, owner =
string.match(one, '^(%d+) (%d+) (%d+) [^\\n]*\\n%d+ %S+ %d (%d+) (%d+) [^\\n]*\\n([^\\n]*)\\n[^\\n]*\\n([^\\n]*)')
if capacity ~= asked or holder == id or taken + units <= tonumber(capacity) then return nil end
local leftMs = leaseMs + (s - time[1]) * 1000 + (us - time[2]) / 1000
return leftMs > 0 and 'busy ' .. string.format('%d', math.ceil(leftMs)) .. ' ' .. owner or nil
end
local rare = {}
putOff = {}
for _, n in ipairs(others) do
local key = KEYS[n]
local request, leaseMs, suggestion, reserve, capacity, units, wait, waiterLeaseMs, id, channel =
string.match(ARGV[n], '^%d+ ((%d+) (%d+)%+?(%d*) %d (%d+) (%d+) (%d) (%d+)\\n([^\\n]*)\\n([^\\n]*).*)$')
local v = putOff[key] and {} or seen[n]
or redis.pcall('HMGET', key, 'one', 'tombstonesEnd', 't:' .. id, 's:' .. id, 'by')
if type(v) == 'string' then v = { v } end
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
if #rare == 0 then return table.concat(answers, '\\n') end`, NAME, `local function ahead(name, channel)
local id = name.last
if id == '' or channel == '' then return '' end
local v = redis.call('HMGET', name.key, 's:' .. id, 'c:' .. id)
local _, ends = parseState(v[1])
return ends > now and parseRequest(v[2]).channel == channel and '\\t' .. id or ''
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
lives(name, ends + asked.lease)
save(name, now, idleMs, 'c:' .. id, withSince(request, now), 's:' .. id, stateText(units, ends, token))
return queuedText(name, id, token, now) .. before
end
save(name, now, idleMs)
return 'busy ' .. untilNext(name, now) .. ' ' .. holder(name)
end
for _, n in ipairs(rare) do answers[n] = isolated(claim, KEYS[n], string.match(ARGV[n], ' (.*)')) end
return table.concat(answers, '\\n')`],
  },
  inspect: {
    sha: "e996d2a7b6912dcc7b356aafbd82dd40eb27bd9b",
    pieces: [`local one = redis.pcall('GET', KEYS[1])
local s, us, leaseMs, last, since, reserve, capacity, units, id, more = string.match(type(one) == 'string' and one or '',
'^(%d+) (%d+) (%d+) (%d+)\\n%d+ (%d+)%+?(%d*) %d (%d+) (%d+) [^\\n]*\\n([^\\n]*)\\n[^\\n]*\\n(.*)$')
local time = redis.call('TIME')
local leftMs = s and leaseMs + (s - time[1]) * 1000 + (us - time[2]) / 1000 or 0
if leftMs > 0 then
local token = last - (tonumber(reserve) or 0)
local at = tonumber(string.match(since, '^0(%d+)$')) or s * 1000000 + us
if at == 0 then at = token end
local forUs = at <= token and math.max(0, time[1] * 1000000 + time[2] - at)
local forMs = forUs and string.format('%.0f', math.floor(forUs / 1000)) or '-'
return { 'name ' .. capacity .. ' ' .. last, 'claim ' .. units .. ' ' .. string.format('%.0f', math.floor(leftMs)) .. ' '
.. string.format('%.0f', token) .. ' ' .. forMs .. '\\n' .. id .. '\\n' .. more }
end`, MANY, NAME, `local now = time[1] * 1000000 + time[2]
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
.. (since and whole(math.max(0, math.floor((now - since) / 1000))) or '-') .. '\\n' .. at .. '\\n'
.. string.match(v[2], '^[^\\n]*\\n[^\\n]*\\n[^\\n]*\\n(.*)$')
end
at = after(name, at, v[3])
end
return answers`],
  },
  layoutVersion: {
    sha: "53502109c0f8349ad3b29cddb32d7e2f8fc3ff37",
    pieces: [`local there = redis.call('GET', KEYS[1])
if there and there ~= ARGV[2] then return there end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]`],
  },
  plainClaim: {
    sha: "08a4c1b5c6fbb4e8d1dabebdbc175bb258af3ceb",
    pieces: [`if redis.call('EXISTS', KEYS[2]) == 1 then return 'gone' end
local value = redis.call('GET', KEYS[1])
if value then
local id, token = string.match(value, '^(.*):(%d+)$')
if id ~= ARGV[1] then return 'busy' end
return 'granted ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. ' ' .. token .. ' ' .. token
end
local time = redis.call('TIME')
local token = string.format('%.0f', math.max(time[1] * 1000000 + time[2], tonumber(ARGV[3])))
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. token, 'NX', 'PX', ARGV[2])
return 'granted ' .. ARGV[2] .. ' ' .. token .. ' ' .. token`],
  },
  plainInspect: {
    sha: "b6180ccbf1bdd730dde905435eb169396dd8b75c",
    pieces: [`local value = redis.call('GET', KEYS[1])
if not value then return 'free' end
return 'held ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. '\\n' .. value`],
  },
  plainRelease: {
    sha: "b90ec6821fc12a0de99102ed7e4ecc75549462a6",
    pieces: [`local value = redis.call('GET', KEYS[1])
local ours = value and string.match(value, '^(.*):%d+$') == ARGV[1]
if ours then
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[3], ARGV[4])
end
local released = not ours and redis.call('EXISTS', KEYS[2]) == 1
if ARGV[2] ~= '0' then
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
end
if ours then return 'released' end
return released and 'revoked' or 'gone'`],
  },
  plainRenew: {
    sha: "8ef3318792aa78b726f3473f28f038156c3e19b3",
    pieces: [`local value = redis.call('GET', KEYS[1])
local id, token = string.match(value or '', '^(.*):(%d+)$')
if id ~= ARGV[1] then return 'gone' end
local leftMs = redis.call('PTTL', KEYS[1])
if tonumber(ARGV[2]) > leftMs then
redis.call('PEXPIRE', KEYS[1], ARGV[2])
leftMs = ARGV[2]
end
return 'granted ' .. string.format('%.0f', leftMs) .. ' ' .. token .. ' ' .. token`],
  },
  redissonClaim: {
    sha: "c94312314e10a00da15aa357fd338d2210d014fe",
    pieces: [REDISSON, `if redis.call('EXISTS', KEYS[2]) == 1 then return 'gone' end
if redis.call('EXISTS', KEYS[1]) == 1 then
local field, token = ownField(KEYS[1], ARGV[1])
if not field then return 'busy' end
return 'granted ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. ' ' .. token .. ' ' .. token
end
local time = redis.call('TIME')
local last = KEYS[3] and redis.call('GET', KEYS[3]) or '0'
local token = string.format('%.0f', math.max(time[1] * 1000000 + time[2], tonumber(ARGV[3]), tonumber(last) + 1))
if KEYS[3] then redis.call('SET', KEYS[3], token) end
redis.call('HSET', KEYS[1], 'holdfast:' .. ARGV[1] .. ':' .. token, '1')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'granted ' .. ARGV[2] .. ' ' .. token .. ' ' .. token`],
  },
  redissonInspect: {
    sha: "9e464b18cc7094acafff0b34711731954aab593e",
    pieces: [`local field = redis.call('HKEYS', KEYS[1])[1]
if not field then return 'free' end
return 'held ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. '\\n' .. field`],
  },
  redissonLatch: {
    sha: "dfdf8d066b879891c57f8e2b41dee294cfb00e36",
    pieces: [WAKE, `local before = redis.call('GET', KEYS[2])
if before then return before end
local count = redis.call('GET', KEYS[1]) or '0'
local answer = 'conflict ' .. count
if count == ARGV[1] then
answer = 'written ' .. ARGV[2]
if ARGV[2] == '0' then
redis.call('DEL', KEYS[1])
else
redis.call('SET', KEYS[1], ARGV[2])
end
if ARGV[2] == '0' then wake(ARGV[3], '0', ARGV[5]) end
if count == '0' and ARGV[2] ~= '0' then wake(ARGV[3], '1', ARGV[5]) end
end
redis.call('SET', KEYS[2], answer, 'PX', ARGV[4])
return answer`],
  },
  redissonRelease: {
    sha: "d952bae117af8fe3b5fa70f1001585911c77847c",
    pieces: [REDISSON, WAKE, `local ours = ownField(KEYS[1], ARGV[1])
if ours then
redis.call('DEL', KEYS[1])
wake(ARGV[3], ARGV[4], ARGV[5])
end
local released = not ours and redis.call('EXISTS', KEYS[2]) == 1
if ARGV[2] ~= '0' then
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
end
if ours then return 'released' end
return released and 'revoked' or 'gone'`],
  },
  redissonRenew: {
    sha: "935d57e7f97d7627d05baaa88710f31f8f09965d",
    pieces: [REDISSON, `local field, token = ownField(KEYS[1], ARGV[1])
if not field then return 'gone' end
local leftMs = redis.call('PTTL', KEYS[1])
if tonumber(ARGV[2]) > leftMs then
redis.call('PEXPIRE', KEYS[1], ARGV[2])
leftMs = ARGV[2]
end
return 'granted ' .. string.format('%.0f', leftMs) .. ' ' .. token .. ' ' .. token`],
  },
  release: {
    sha: "0c3be52ecbc1d7b7cc0b9ffd56fedcf5c1c9802b",
    pieces: [`local time = redis.call('TIME')
local answers, others, putOff = {}, nil, nil
for n = 1, #KEYS do
local one = not (putOff and putOff[KEYS[n]]) and string.byte(ARGV[n]) ~= 49 and redis.pcall('GET', KEYS[n])
local isHash = type(one) == 'table'
if isHash then one = redis.pcall('HGET', KEYS[n], 'one') end
if type(one) == 'string' then
local mine = string.sub(ARGV[n], 24)
local _, last, s, us, leaseMs, token = string.find(one, '^(%d+) (%d+) (%d+) (%d+)\\n[^\\n]*\\n')
if last and #token >= 16 and string.find(one, mine, last + 1, true) == last + 1
and (s == time[1] and #leaseMs > 3 or leaseMs + (s - time[1]) * 1000 + (us - time[2]) / 1000 > 0) then
local written
if isHash then
written = redis.pcall('HSET', KEYS[n], 'one', token)
else
written = redis.pcall('SET', KEYS[n], token, 'KEEPTTL')
end
if type(written) == 'number' or written.ok then answers[n] = 'released' end
end
end
if not answers[n] then
others, putOff = others or {}, putOff or {}
others[n] = one or ''
putOff[KEYS[n]] = true
end
end
if not others then return #KEYS == 1 and answers[1] or table.concat(answers, '\\n') end`, MANY, `local now = time[1] * 1000000 + time[2]
local REQUEST = '^(%d)' .. string.rep('%d', 22) .. '([^\\n]*)\\n([^\\n]*)\\n(.*)$'
local function handOver(key, id, channel, to, one)
local capacity, _, upTo, _, soonest, lives, first, waiter, last = string.match(one, MANY)
if first ~= id or waiter == '' or tonumber(soonest) <= now then return false end
local v = redis.call('HMGET', key, 's:' .. waiter, '<:' .. waiter, '>:' .. waiter, 'c:' .. waiter, 'by')
local units, ends, token = string.match(v[1], '^(%d+) (%d+) (%d+)$')
if v[2] ~= id or units ~= capacity or tonumber(ends) <= now then return false end
local mine = id .. '\\n' .. channel .. '\\n'
if string.sub(v[5] or '', 1, #mine) ~= mine then return false end
local leaseMs, tail, exact, by, itsChannel =
string.match(v[4], '^(%d+) %d+(%+?%d* (%d)[^\\n]*\\n([^\\n]*\\n([^\\n]*).*))$')
redis.call('HDEL', key, 's:' .. id, 'c:' .. id, '<:' .. id, '>:' .. id)
redis.call('HSET', key, 'one',
manyText(capacity, units, upTo, token, ends, lives, waiter, waiter ~= last and v[3] or '', last), 'by', by,
'c:' .. waiter, leaseMs .. ' 0' .. time[1] .. string.sub('00000' .. time[2], -6) .. tail)
if itsChannel ~= '' and waiter ~= to then
local fence = token .. ' ' .. token .. (exact == '1' and ' ' .. token or '')
redis.call('PUBLISH', itsChannel, 'granted\\n' .. waiter .. '\\n' .. key .. '\\n' .. fence)
end
return true
end
local rare = {}
putOff = {}
for n = 1, #KEYS do
local key, one = KEYS[n], others[n]
if one then
local code, id, channel, to = string.match(ARGV[n], REQUEST)
if one == '' and code ~= '1' and not putOff[key] then one = redis.pcall('HGET', key, 'one') or '' end
if type(one) == 'string' and not putOff[key] and handOver(key, id, channel, to, one) then
answers[n] = 'released'
else
rare[#rare + 1] = n
putOff[key] = true
end
end
end
if #rare == 0 then return table.concat(answers, '\\n') end`, NAME, `local function leaveTombstone(name, id, before, tombstoneMs)
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
local owner = string.match(stored, '^[^\\n]*\\n[^\\n]*\\n([^\\n]*)')
if owner ~= channel then push(owner, 'lost', id, name, '') end
end
if code == '1' or code == '2' and not units then leaveTombstone(name, id, tombstone, tombstoneMs) end
save(name, now, idleMs)
if units then return 'released' end
return hasTombstone(tombstone, now) and 'revoked' or 'gone'
end
evenWhenFull()
for _, n in ipairs(rare) do answers[n] = isolated(release, KEYS[n], ARGV[n]) end
return table.concat(answers, '\\n')`],
  },
  renew: {
    sha: "040fa051d6a6dfbfdc01853cec822c02033f0196",
    pieces: [`local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local idleMs = tonumber(ARGV[#KEYS + 1])
local answers, others, putOff = {}, {}, {}
for n = 1, #KEYS do
local id, leaseMs, wanted = string.match(ARGV[n], '^([^\\n]*)\\n(%d*)\\n(%d*)$')
local one = not putOff[KEYS[n]] and redis.pcall('GET', KEYS[n])
local isHash = type(one) == 'table'
if isHash then one = redis.pcall('HGET', KEYS[n], 'one') end
local s, us, forMs, upTo, own, since, rest, reserve, exact, holder = string.match(type(one) == 'string' and one or '',
'^(%d+) (%d+) (%d+) (%d+)\\n(%d+) (%d+)(%+?(%d*) (%d)[^\\n]*\\n([^\\n]*).*)$')
local leftMs = holder == id and wanted == '' and forMs + (s - time[1]) * 1000 + (us - time[2]) / 1000
local tombstonesMs = 0
if leftMs and isHash then
local tombstonesEnd = redis.call('HGET', KEYS[n], 'tombstonesEnd')
if tombstonesEnd then tombstonesMs = math.ceil((tombstonesEnd - now) / 1000) end
if tombstonesEnd and tombstonesMs <= 0 then leftMs = nil end
end
if leftMs and leftMs > 0 then
if leaseMs == '' then leaseMs = own end
local token = reserve == '' and upTo or string.format('%.0f', upTo - reserve)
if leftMs < tonumber(leaseMs) then
leftMs = tonumber(leaseMs)
if not string.find(since, '^0%d') then
local granted = s .. string.sub('00000' .. us, -6)
local before = token - granted
if before == 0 then since = '00' elseif before > 0 then since = '0' .. granted end
end
one = time[1] .. ' ' .. time[2] .. ' ' .. leaseMs .. ' ' .. upTo .. '\\n' .. own .. ' ' .. since .. rest
end
local keepMs = math.max(math.ceil(leftMs) + idleMs, tombstonesMs)
redis.call('PEXPIRE', KEYS[n], string.format('%.0f', keepMs))
if isHash then redis.call('HSET', KEYS[n], 'one', one) else redis.call('SET', KEYS[n], one, 'KEEPTTL') end
answers[n] = 'granted ' .. string.format('%.0f', math.floor(leftMs)) .. ' ' .. token .. ' ' .. token
if exact == '1' then answers[n] = answers[n] .. ' ' .. token end
else
others[#others + 1] = n
putOff[KEYS[n]] = true
end
end
if #others == 0 then return table.concat(answers, '\\n') end`, MANY, NAME, `local names = {}
local function raise(name, id, token, wanted)
if wanted <= token then return token end
clearFront(name, now)
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
local id, lease, wanted = string.match(request, '^([^\\n]*)\\n(%d*)\\n(%d*)$')
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
if name.taken == units then name.soonest = ends end
lives(name, ends)
redis.call('HSET', key, 's:' .. id, stateText(units, ends, token))
return grantedText(name, id, ends, token, asked.exact, now)
end
evenWhenFull()
for _, n in ipairs(others) do answers[n] = isolated(renew, KEYS[n], ARGV[n]) end
for _, name in pairs(names) do save(name, now, idleMs) end
return table.concat(answers, '\\n')`],
  },
  resize: {
    sha: "f44fb21880017849bfc32e3cc20b21e98f3eff0b",
    pieces: [MANY, NAME, `local id, wanted, idleMs = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = serverTime()
evenWhenFull()
local name, state = load(KEYS[1], id)
advance(name, now)
local units, ends, token, holds = live(name, id, state, now)
local answer = 'gone'
if units then
answer = 'refused'
if holds and wanted <= units then
answer = 'resized'
redis.call('HSET', name.key, 's:' .. id, stateText(wanted, ends, token))
name.taken = name.taken - (units - wanted)
name.changed = true
advance(name, now)
end
end
save(name, now, idleMs)
return answer`],
  },
} as const;
