-- Who holds a mutex of Redisson's layout, ours or another program's.
--
-- KEYS[1]  the lock, at exactly its name
--
-- returns held <left ms, negative when it never ends>, then a line with the field
-- returns free

local field = redis.call('HKEYS', KEYS[1])[1]
if not field then return 'free' end
return 'held ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. '\n' .. field
