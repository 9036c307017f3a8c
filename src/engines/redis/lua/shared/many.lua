-- The field `one` of a name that several claims hold or wait for, as name.lua describes it. Whole numbers come as texts:
-- Lua would print large ones as 1.79e+15.
local MANY = '^many (%d+) (%d+) (%d+) (%S+) (%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$'
local function manyText(capacity, taken, token, soonest, lives, h1, h2, w1, w2)
  return 'many ' .. capacity .. ' ' .. taken .. ' ' .. token .. ' ' .. soonest .. ' ' .. lives .. '\n' .. h1 .. '\n' .. h2
    .. '\n' .. w1 .. '\n' .. w2
end
