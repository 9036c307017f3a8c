-- The field `one` of a name that several claims hold or wait for, as name.lua describes it. Whole numbers come as texts:
-- Lua would print large ones as 1.79e+15.
local MANY = '^many (%d+) (%d+) (%d+) (%d+) (%S+) (%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)$'
local function manyText(capacity, taken, token, held, soonest, lives, first, waiter, last)
  return 'many ' .. capacity .. ' ' .. taken .. ' ' .. token .. ' ' .. held .. ' ' .. soonest .. ' ' .. lives .. '\n' .. first
    .. '\n' .. waiter .. '\n' .. last
end
