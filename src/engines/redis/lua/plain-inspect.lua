-- Who holds a mutex of the plain layout, ours or another program's.
--
-- KEYS[1]  the lock, at exactly its name
--
-- returns held <left ms, negative when it never ends>, then a line with the value
-- returns free

local value = redis.call('GET', KEYS[1])
if not value then return 'free' end
return 'held ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. '\n' .. value
