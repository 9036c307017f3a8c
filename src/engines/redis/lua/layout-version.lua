-- The version of the layout of everything under a prefix. Written where there is none, or over the one that was seen before.
-- Answers with the version that is there then.
--
-- KEYS[1]  the version
-- ARGV[1]  the caller's
-- ARGV[2]  the one that was seen before; empty: none was

local there = redis.call('GET', KEYS[1])
if there and there ~= ARGV[2] then return there end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
