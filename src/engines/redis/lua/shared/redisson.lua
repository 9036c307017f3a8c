-- Redisson's RLock: a hash with one field for whoever holds it, "uuid:thread". Ours is "holdfast:id:token", which is the
-- same to Redisson, and never the field of one of its threads.

local function ownField(key, id)
  -- One field; only a hash that is no RLock has more.
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local owner, token = string.match(field, '^holdfast:(.*):(%d+)$')
    if owner == id then return field, token end
  end
end
