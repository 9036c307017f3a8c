-- Tells the programs that listen to a channel of Redisson's. In a Cluster of Redis 7 Redisson listens to sharded channels;
-- an older server does not know the command, and then nobody listens to them.

local function wake(channel, message, sharded)
  redis.call('PUBLISH', channel, message)
  if sharded == '1' then redis.pcall('SPUBLISH', channel, message) end
end
