// Compiled from lua/*.lua by scripts/compile-lua.mjs (npm run scripts). Do not edit.

const MANY =
  `local MANY = '^many (%d+) (%d+) (%d+) (%S+) (%d+)\\n([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)$'
local function manyText(capacity, taken, token, soonest, lives, h1, h2, w1, w2)
return 'many ' .. capacity .. ' ' .. taken .. ' ' .. token .. ' ' .. soonest .. ' ' .. lives .. '\\n' .. h1 .. '\\n' .. h2
.. '\\n' .. w1 .. '\\n' .. w2
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
local lease, suggestion, exact, capacity, units, wait, waiterLease, id, channel, owner =
string.match(request, '^(%d+) (%d+) (%d) (%d+) (%d+) (%d) (%d+) %d+\\n([^\\n]*)\\n([^\\n]*)\\n([^\\n]*)')
return {
lease = tonumber(lease) * 1000,
suggestion = tonumber(suggestion),
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
local function load(key, id)
local v = redis.call('HMGET', key, 'one', 'tombstonesEnd', 's:' .. id, 'c:' .. id, 't:' .. id)
local one, state, asked = v[1] or '0', v[3], v[4]
local name = { key = key, tombstonesEnd = tonumber(v[2]) or 0, changed = false, moved = false, longer = false }
local capacity, taken, last, soonest, lives, h1, h2, w1, w2 = string.match(one, MANY)
if capacity then
name.capacity, name.taken, name.token = tonumber(capacity), tonumber(taken), tonumber(last)
name.soonest, name.lives = tonumber(soonest), tonumber(lives)
name.h1, name.h2, name.w1, name.w2 = h1, h2, w1, w2
return name, state, asked, v[5]
end
name.taken, name.soonest, name.lives, name.h1, name.h2, name.w1, name.w2 = 0, math.huge, 0, '', '', '', ''
local second, us, leaseMs, token, request = string.match(one, '^(%d+) (%d+) (%d+) (%d+) ?t?\\n(.*)$')
name.token = tonumber(token or string.match(one, '^%d+'))
if request then
local its = parseRequest(request)
name.capacity, name.taken, name.h1, name.h2 = its.capacity, its.units, its.id, its.id
local ends = second * 1000000 + us + leaseMs * 1000
name.soonest, name.lives = ends, ends
name.changed = true
local itsState = whole(its.units) .. ' ' .. whole(ends) .. ' ' .. token
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
return name.h1 == '' and name.w1 == ''
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
redis.call('HDEL', name.key, 'by')
local flag = name.tombstonesEnd > 0 and ' t' or ''
if name.token > 0 or flag ~= '' then redis.call('HSET', name.key, 'one', whole(name.token) .. flag) end
redis.call('PEXPIRE', name.key, leftMs)
return
end
local text = manyText(whole(name.capacity), whole(name.taken), whole(name.token), whole(name.soonest), whole(name.lives),
name.h1, name.h2, name.w1, name.w2)
redis.call('HSET', name.key, 'one', text, ...)
if name.longer then
redis.call('PEXPIRE', name.key, math.max(leftMs, math.ceil((name.lives - now) / 1000) + idleMs))
end
end
local function parseState(state)
local units, ends, token = string.match(state, '^(%d+) (%d+) (%d+)$')
return tonumber(units), tonumber(ends), tonumber(token)
end
local function stateText(units, ends, token)
return whole(units) .. ' ' .. whole(ends) .. ' ' .. whole(token)
end
local function lives(name, ends)
if ends <= name.lives then return end
name.lives = ends + 1000000
name.longer = true
end
local function after(name, id, last, link)
return id ~= name[last] and link or ''
end
local function unlink(name, id, first, last, link)
name.changed = true
if name[first] == id then
if name[last] == id then
name[first], name[last] = '', ''
else
name[first] = link or redis.call('HGET', name.key, '>:' .. id)
end
return
end
local v = redis.call('HMGET', name.key, '<:' .. id, '>:' .. id)
if name[last] == id then
name[last] = v[1]
else
redis.call('HSET', name.key, '>:' .. v[1], v[2], '<:' .. v[2], v[1])
end
end
local function append(name, id, first, last)
local before = name[last]
if before == '' then
name[first] = id
else
redis.call('HSET', name.key, '>:' .. before, id, '<:' .. id, before)
end
name[last] = id
name.changed = true
end
local function drop(name, id, units, token, link)
local by = token > 0 and name.h1 == id and 'by' or ''
if token > 0 then
unlink(name, id, 'h1', 'h2', link)
name.taken = name.taken - units
if name.h1 == '' then name.soonest = math.huge end
else
unlink(name, id, 'w1', 'w2', link)
end
redis.call('HDEL', name.key, 's:' .. id, 'c:' .. id, '<:' .. id, '>:' .. id, by)
name.moved = true
end
local function grant(name, id, units, ends, suggestion, now)
local token = math.max(name.token + 1, now, suggestion)
name.token = token
name.taken = name.taken + units
name.soonest = math.min(name.soonest, ends)
append(name, id, 'h1', 'h2')
return token
end
local function fence(name, id, token, exact)
if not exact then
if name.h1 == id then return whole(token) end
local _, _, floor = parseState(redis.call('HGET', name.key, 's:' .. name.h1))
return whole(floor)
end
local tokens, at = {}, name.h1
while at ~= '' do
local v = redis.call('HMGET', name.key, 's:' .. at, '>:' .. at)
local _, _, one = parseState(at == id and stateText(0, 0, token) or v[1])
tokens[#tokens + 1] = whole(one)
at = after(name, at, 'h2', v[2])
end
return tokens[1] .. ' ' .. table.concat(tokens, ',')
end
local function expireHolders(name, now)
name.soonest = math.huge
name.changed = true
local at = name.h1
while at ~= '' do
local id = at
local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id)
local units, ends, token = parseState(v[1])
at = after(name, id, 'h2', v[2])
if ends <= now then drop(name, id, units, token, v[2]) else name.soonest = math.min(name.soonest, ends) end
end
end
local function push(channel, kind, id, name, more)
if channel ~= '' then redis.call('PUBLISH', channel, kind .. '\\n' .. id .. '\\n' .. name.key .. '\\n' .. more) end
end
local function advance(name, now)
if now >= name.soonest then expireHolders(name, now) end
while name.w1 ~= '' and name.taken < name.capacity do
local id = name.w1
local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id, 'c:' .. id)
local units, ends = parseState(v[1])
if ends <= now then
drop(name, id, units, 0, v[2])
elseif name.taken + units <= name.capacity then
local suggestion, exact, by, channel = string.match(v[3], '^%d+ (%d+) (%d)[^\\n]*\\n([^\\n]*\\n([^\\n]*).*)$')
unlink(name, id, 'w1', 'w2', v[2])
local token = grant(name, id, units, ends, tonumber(suggestion), now)
redis.call('HSET', name.key, 's:' .. id, stateText(units, ends, token))
if name.h1 == id then redis.call('HSET', name.key, 'by', by) end
name.moved = true
push(channel, 'granted', id, name, whole(token) .. ' ' .. fence(name, id, token, exact == '1'))
else
break
end
end
end
local function live(name, id, state, now)
if name.moved then state = redis.call('HGET', name.key, 's:' .. id) end
if not state then return nil end
local units, ends, token = parseState(state)
if ends > now then return units, ends, token end
drop(name, id, units, token)
advance(name, now)
return nil
end
local function holder(name)
if name.h1 == '' then return '' end
if name.holder == nil then
name.holder = parseRequest(redis.call('HGET', name.key, 'c:' .. name.h1)).owner
end
return name.holder
end
local function grantedText(name, id, ends, token, exact, now)
return 'granted ' .. whole(math.floor((ends - now) / 1000)) .. ' ' .. whole(token) .. ' ' .. fence(name, id, token, exact)
end
local function clearFront(name, now)
while name.w1 ~= '' do
local units, ends = parseState(redis.call('HGET', name.key, 's:' .. name.w1))
if ends > now then return end
drop(name, name.w1, units, 0)
end
end
local function untilNext(name, now)
return name.soonest < math.huge and whole(math.max(0, math.ceil((name.soonest - now) / 1000))) or '0'
end
local function queuedText(name, id, now)
local nextMs = name.w1 == id and untilNext(name, now) or '-'
return 'queued ' .. whole(name.token) .. ' ' .. nextMs .. ' ' .. holder(name)
end
local function isolated(verb, key, request)
local fine, answer = pcall(verb, key, request)
if fine then return answer end
return 'error ' .. string.gsub(type(answer) == 'table' and answer.err or tostring(answer), '\\n', ' ')
end`;

/** The pieces of a script, joined by line ends, are what its hash is of. What scripts share stands here once. */
export const SCRIPTS = {
  capacity: {
    sha: "6cc9bb36cd123fdcf782971d0a7b973ff95d673d",
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
local at = name.w1
while at ~= '' do
local id = at
local v = redis.call('HMGET', name.key, 's:' .. id, '>:' .. id, 'c:' .. id)
local units, ends = parseState(v[1])
at = after(name, id, 'w2', v[2])
if units > to then
drop(name, id, units, 0, v[2])
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
    sha: "9e9ad9a839e82102a094a8d6d2042d94a29e68a6",
    pieces: [`local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rest = ARGV[#KEYS + 1]
local answers, others, putOff = {}, nil, nil
for n = 1, #KEYS do
local key, request = KEYS[n], ARGV[n]
local leaseMs, suggestion, exact, capacity, units, keepMs, id =
string.match(request, '^(%d+) (%d+) (%d) (%d+) (%d+) %d %d+ (%d+)\\n(.*)$')
local one = not (putOff and putOff[key]) and (redis.pcall('HGET', key, 'one') or '0')
local last, flag = tonumber(one), ''
if not last and type(one) == 'string' then
last = tonumber(string.match(one, '^(%d+) t$'))
if last then
local v = redis.call('HMGET', key, 't:' .. id, 'tombstonesEnd')
local tombstonesMs = math.ceil(((v[2] or 0) - now) / 1000)
flag = ' t'
if tombstonesMs > tonumber(keepMs) then keepMs = string.format('%.0f', tombstonesMs) end
if v[1] and tonumber(v[1]) > now then answers[n] = 'gone' end
if tombstonesMs <= 0 then last = nil end
end
end
if last and not answers[n] and (units == capacity or tonumber(units) < tonumber(capacity)) then
local token, wanted = suggestion, tonumber(suggestion)
if wanted <= last or wanted < now then
token = last < now and time[1] .. string.sub('00000' .. time[2], -6) or string.format('%.0f', last + 1)
end
redis.call('HSET', key, 'one',
time[1] .. ' ' .. time[2] .. ' ' .. leaseMs .. ' ' .. token .. flag .. '\\n' .. request .. '\\n' .. rest)
redis.call('PEXPIRE', key, keepMs)
answers[n] = 'granted ' .. leaseMs .. ' ' .. token .. ' ' .. token
if exact == '1' then answers[n] = answers[n] .. ' ' .. token end
end
if not answers[n] then
others, putOff = others or {}, putOff or {}
others[#others + 1] = n
putOff[key] = true
end
end
if not others then return #KEYS == 1 and answers[1] or table.concat(answers, '\\n') end`, MANY, `local idleMs = tonumber(ARGV[#KEYS + 2])
local function queue(key, request, id, leaseMs, asked, units, waiterLeaseMs, one, tombstonesEnd, by)
local capacity, taken, token, soonest, lives, h1, h2, w1, w2 = string.match(one, MANY)
if capacity ~= asked or tonumber(soonest) <= now then return nil end
if tombstonesEnd and tonumber(tombstonesEnd) <= now then return nil end
if w1 == '' and taken + units <= tonumber(capacity) then return nil end
local nextMs = '-'
if w1 == '' then
w1, nextMs = id, string.format('%.0f', math.ceil((soonest - now) / 1000))
else
local frontEnds = string.match(redis.call('HGET', key, 's:' .. w1), '^%d+ (%d+)')
if tonumber(frontEnds) <= now then return nil end
end
local first, holder = string.match(by, '^([^\\n]*)\\n[^\\n]*\\n([^\\n]*)')
if first ~= h1 then return nil end
local ends = now + waiterLeaseMs * 1000
local needed = ends + leaseMs * 1000
if needed > tonumber(lives) then
lives = string.format('%.0f', needed + 1000000)
local tombstonesMs = math.ceil(((tombstonesEnd or 0) - now) / 1000)
redis.call('PEXPIRE', key, math.max(math.ceil((lives - now) / 1000) + idleMs, tombstonesMs))
end
redis.call('HSET', key, 'one', manyText(capacity, taken, token, soonest, lives, h1, h2, w1, id),
'c:' .. id, request, 's:' .. id, units .. string.format(' %.0f 0', ends),
'<:' .. id, w2, '>:' .. (w2 == '' and id or w2), id)
return 'queued ' .. token .. ' ' .. nextMs .. ' ' .. holder
end
local function busy(id, asked, units, one)
local s, us, leaseMs, capacity, taken, holder, owner =
string.match(one, '^(%d+) (%d+) (%d+) [^\\n]*\\n%d+ %d+ %d (%d+) (%d+) [^\\n]*\\n([^\\n]*)\\n[^\\n]*\\n([^\\n]*)')
if capacity ~= asked or holder == id or taken + units <= tonumber(capacity) then return nil end
local leftMs = leaseMs + (s - time[1]) * 1000 + (us - time[2]) / 1000
return leftMs > 0 and 'busy ' .. string.format('%d', math.ceil(leftMs)) .. ' ' .. owner or nil
end
local rare = {}
putOff = {}
for _, n in ipairs(others) do
local key, request = KEYS[n], ARGV[n]
local leaseMs, capacity, units, wait, waiterLeaseMs, id =
string.match(request, '^(%d+) %d+ %d (%d+) (%d+) (%d) (%d+) %d+\\n(.*)$')
local v = putOff[key] and {} or redis.pcall('HMGET', key, 'one', 'tombstonesEnd', 't:' .. id, 's:' .. id, 'by')
if v[3] and tonumber(v[3]) > now then
answers[n] = 'gone'
elseif wait == '0' then
answers[n] = v[1] and busy(id, capacity, units, v[1])
elseif v[5] and not v[4] then
answers[n] = queue(key, request .. '\\n' .. rest, id, leaseMs, capacity, units, waiterLeaseMs, v[1], v[2], v[5])
end
if not answers[n] then
rare[#rare + 1] = n
putOff[key] = true
end
end
if #rare == 0 then return table.concat(answers, '\\n') end`, NAME, `local function claim(key, request)
local asked = parseRequest(request)
local id, units = asked.id, asked.units
local name, state, known, tombstone = load(key, id)
if hasTombstone(tombstone, now) then
save(name, now, idleMs)
return 'gone'
end
advance(name, now)
local itsUnits, ends, token = live(name, id, state, now)
if itsUnits then
local answer
if token > 0 then
answer = grantedText(name, id, ends, token, parseRequest(known).exact, now)
else
clearFront(name, now)
answer = queuedText(name, id, now)
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
lives(name, ends + asked.lease)
save(name, now, idleMs, 'c:' .. id, request, 's:' .. id, stateText(units, ends, 0))
return queuedText(name, id, now)
end
save(name, now, idleMs)
return 'busy ' .. untilNext(name, now) .. ' ' .. holder(name)
end
for _, n in ipairs(rare) do answers[n] = isolated(claim, KEYS[n], ARGV[n] .. '\\n' .. rest) end
return table.concat(answers, '\\n')`],
  },
  inspect: {
    sha: "7b34996c215d49034634c1fdd44e88820229a48d",
    pieces: [MANY, NAME, `local now = serverTime()
evenWhenFull()
local name = load(KEYS[1], '')
advance(name, now)
save(name, now, tonumber(ARGV[1]))
if isIdle(name) then return {} end
local answers = { 'name ' .. whole(name.capacity) .. ' ' .. whole(name.token) }
for list in string.gmatch('hw', '.') do
local at = name[list .. '1']
while at ~= '' do
local v = redis.call('HMGET', name.key, 's:' .. at, 'c:' .. at, '>:' .. at)
local units, ends, token = parseState(v[1])
if ends > now then
answers[#answers + 1] = 'claim ' .. whole(units) .. ' ' .. whole(math.floor((ends - now) / 1000)) .. ' '
.. whole(token) .. '\\n' .. at .. '\\n' .. string.match(v[2], '^[^\\n]*\\n[^\\n]*\\n[^\\n]*\\n(.*)$')
end
at = after(name, at, list .. '2', v[3])
end
end
return answers`],
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
  release: {
    sha: "7ae6b6a91a3d1557845397f319be91e10c164c0c",
    pieces: [`local time = redis.call('TIME')
local channel = ARGV[#KEYS + 1]
local answers, others, putOff = {}, nil, nil
for n = 1, #KEYS do
local one = not (putOff and putOff[KEYS[n]]) and string.byte(ARGV[n]) ~= 49 and redis.pcall('HGET', KEYS[n], 'one')
if type(one) == 'string' then
local mine = string.sub(ARGV[n], 2) .. '\\n' .. channel .. '\\n'
local _, last, s, us, leaseMs, token = string.find(one, '^(%d+) (%d+) (%d+) (%d+ ?t?)\\n[^\\n]*\\n')
if last and string.find(one, mine, last + 1, true) == last + 1
and leaseMs + (s - time[1]) * 1000 + (us - time[2]) / 1000 > 0 then
local refused = redis.pcall('HSET', KEYS[n], 'one', token)
if type(refused) ~= 'number' then
redis.call('HDEL', KEYS[n], '')
redis.call('HSET', KEYS[n], 'one', token)
end
answers[n] = 'released'
end
end
if not answers[n] then
others, putOff = others or {}, putOff or {}
others[n] = one or ''
putOff[KEYS[n]] = true
end
end
if not others then return #KEYS == 1 and answers[1] or table.concat(answers, '\\n') end`, MANY, `local now = time[1] * 1000000 + time[2]
local idleMs, tombstoneMs = tonumber(ARGV[#KEYS + 2]), tonumber(ARGV[#KEYS + 3])
local function handOver(key, id, one)
local capacity, _, last, soonest, lives, h1, h2, w1, w2 = string.match(one, MANY)
if h1 ~= id or h2 ~= id or w1 == '' or tonumber(soonest) <= now then return false end
local v = redis.call('HMGET', key, 's:' .. w1, '>:' .. w1, 'c:' .. w1, 'by')
local mine = id .. '\\n' .. channel .. '\\n'
local units, ends = string.match(v[1], '^(%d+) (%d+)')
if units ~= capacity or tonumber(ends) <= now or string.sub(v[4] or '', 1, #mine) ~= mine then return false end
local suggestion, exact, by, itsChannel = string.match(v[3], '^%d+ (%d+) (%d)[^\\n]*\\n([^\\n]*\\n([^\\n]*).*)$')
local token = string.format('%.0f', math.max(last + 1, now, suggestion))
local isLast = w1 == w2
redis.call('HDEL', key, 's:' .. id, 'c:' .. id, '<:' .. id, '>:' .. id)
redis.call('HSET', key, 'one', manyText(capacity, units, token, ends, lives, w1, w1, isLast and '' or v[2], isLast and '' or w2),
's:' .. w1, units .. ' ' .. ends .. ' ' .. token, 'by', by)
if itsChannel ~= '' then
local fence = token .. ' ' .. token .. (exact == '1' and ' ' .. token or '')
redis.call('PUBLISH', itsChannel, 'granted\\n' .. w1 .. '\\n' .. key .. '\\n' .. fence)
end
return true
end
local rare = {}
putOff = {}
for n = 1, #KEYS do
local key, one = KEYS[n], others[n]
if type(one) == 'string' and not putOff[key] and handOver(key, string.sub(ARGV[n], 2), one) then
answers[n] = 'released'
elseif one then
rare[#rare + 1] = n
putOff[key] = true
end
end
if #rare == 0 then return table.concat(answers, '\\n') end`, NAME, `local function leaveTombstone(name, id, before)
name.changed = true
name.longer = true
name.tombstonesEnd = now + tombstoneMs * 1000
local first, last = clearTombstones(name, now)
if not hasTombstone(before, now) then
last = last + 1
redis.call('HSET', name.key, 'x:' .. whole(last), id)
end
redis.call('HSET', name.key, 't:' .. id, whole(name.tombstonesEnd), 'tombstone1', whole(first), 'tombstone2', whole(last),
'tombstonesEnd', whole(name.tombstonesEnd))
end
local function release(key, request)
local code, id = string.match(request, '^(%d)(.*)$')
local name, state, stored, tombstone = load(key, id)
advance(name, now)
local units, _, token = live(name, id, state, now)
if units then
drop(name, id, units, token)
advance(name, now)
local owner = string.match(stored, '^[^\\n]*\\n[^\\n]*\\n([^\\n]*)')
if owner ~= channel then push(owner, 'lost', id, name, '') end
end
if code == '1' or code == '2' and not units then leaveTombstone(name, id, tombstone) end
save(name, now, idleMs)
if units then return 'released' end
return hasTombstone(tombstone, now) and 'revoked' or 'gone'
end
evenWhenFull()
for _, n in ipairs(rare) do answers[n] = isolated(release, KEYS[n], ARGV[n]) end
return table.concat(answers, '\\n')`],
  },
  renew: {
    sha: "e0c1904327e6329f2654793ca03002f99b380fbd",
    pieces: [`local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local idleMs = tonumber(ARGV[#KEYS + 1])
local answers, others, putOff = {}, {}, {}
for n = 1, #KEYS do
local id, leaseMs, wanted = string.match(ARGV[n], '^([^\\n]*)\\n(%d*)\\n(%d*)$')
local one = not putOff[KEYS[n]] and redis.pcall('HGET', KEYS[n], 'one')
local s, us, forMs, token, flag, request, own, exact, holder =
string.match(type(one) == 'string' and one or '', '^(%d+) (%d+) (%d+) (%d+)( ?t?)(\\n(%d+) %d+ (%d)[^\\n]*\\n([^\\n]*).*)$')
local leftMs = holder == id and wanted == '' and forMs + (s - time[1]) * 1000 + (us - time[2]) / 1000
local tombstonesMs = 0
if leftMs and flag ~= '' then
tombstonesMs = math.ceil(((redis.call('HGET', KEYS[n], 'tombstonesEnd') or 0) - now) / 1000)
if tombstonesMs <= 0 then leftMs = nil end
end
if leftMs and leftMs > 0 then
if leaseMs == '' then leaseMs = own end
if leftMs < tonumber(leaseMs) then
leftMs = tonumber(leaseMs)
one = time[1] .. ' ' .. time[2] .. ' ' .. leaseMs .. ' ' .. token .. flag .. request
end
local keepMs = math.max(math.ceil(leftMs) + idleMs, tombstonesMs)
redis.call('PEXPIRE', KEYS[n], string.format('%.0f', keepMs))
redis.call('HSET', KEYS[n], 'one', one)
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
if name.h1 == id then redis.call('HDEL', name.key, 'by') end
unlink(name, id, 'h1', 'h2')
name.token = math.max(name.token, wanted)
name.holder = nil
local before, behind = name.h2, ''
while before ~= '' do
local v = redis.call('HMGET', name.key, 's:' .. before, '<:' .. before)
local _, _, other = parseState(v[1])
if other <= wanted then break end
behind, before = before, before ~= name.h1 and v[2] or ''
end
if behind == '' then
append(name, id, 'h1', 'h2')
else
redis.call('HSET', name.key, '>:' .. id, behind, '<:' .. behind, id)
if before == '' then name.h1 = id else redis.call('HSET', name.key, '>:' .. before, id, '<:' .. id, before) end
end
return wanted
end
local function renew(key, request)
local id, lease, wanted = string.match(request, '^([^\\n]*)\\n(%d*)\\n(%d*)$')
local name, state, stored, tombstone = names[key], nil, nil, nil
if name then
name.moved = false
local v = redis.call('HMGET', key, 's:' .. id, 'c:' .. id, 't:' .. id)
state, stored, tombstone = v[1], v[2], v[3]
else
name, state, stored, tombstone = load(key, id)
names[key] = name
advance(name, now)
end
local units, ends, token = live(name, id, state, now)
if not units then return hasTombstone(tombstone, now) and 'revoked' or 'gone' end
local asked = parseRequest(stored)
name.changed = true
if token == 0 then
ends = now + asked.waiterLease
lives(name, ends + asked.lease)
redis.call('HSET', key, 's:' .. id, stateText(units, ends, 0))
clearFront(name, now)
return queuedText(name, id, now)
end
ends = math.max(ends, now + (lease == '' and asked.lease or tonumber(lease) * 1000))
if wanted ~= '' then token = raise(name, id, token, tonumber(wanted)) end
if name.h1 == id and name.h2 == id then name.soonest = ends end
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
    sha: "ca82a006a3af744d902caa91503549140a474fc4",
    pieces: [MANY, NAME, `local id, wanted, idleMs = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = serverTime()
evenWhenFull()
local name, state = load(KEYS[1], id)
advance(name, now)
local units, ends, token = live(name, id, state, now)
local answer = 'gone'
if units then
answer = 'refused'
if token > 0 and wanted <= units then
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
