"""Scripts on the simulator's clock: the same text, for scripts that ask the server for the time or let keys live for so long from
now, neither of which a caller can tell them."""

from __future__ import annotations

from chaos.simulate.cutting import with_prelude

#: Times to live become times at which keys expire: those the reader of the state keeps (`READ_ALL`), and at their pace.
_PRELUDE = """local now_of_call_ms = tonumber(table.remove(ARGV))
local server_with_clock = redis
local function on_clock(call)
  local function after(number, unit) return string.format('%.0f', now_of_call_ms + number * unit) end
  return function(name, ...)
    if name == 'TIME' then
      return { string.format('%d', math.floor(now_of_call_ms / 1000)), string.format('%d', now_of_call_ms % 1000 * 1000) }
    elseif name == 'PTTL' then
      local at_ms = call('PEXPIRETIME', ...)
      return at_ms < 0 and at_ms or math.max(0, at_ms - now_of_call_ms)
    elseif name == 'EXPIRE' or name == 'PEXPIRE' then
      local words = { ... }
      words[2] = after(words[2], name == 'EXPIRE' and 1000 or 1)
      return call('PEXPIREAT', unpack(words))
    elseif name == 'SET' then
      local words = { ... }
      for at = 3, #words - 1 do
        local unit = words[at] == 'EX' and 1000 or words[at] == 'PX' and 1
        if unit then words[at], words[at + 1] = 'PXAT', after(words[at + 1], unit) end
      end
      return call(name, unpack(words))
    end
    return call(name, ...)
  end
end
local redis = setmetatable({ call = on_clock(server_with_clock.call), pcall = on_clock(server_with_clock.pcall) },
  { __index = server_with_clock })
"""


def clocked_text(text: str) -> str:
    """A script's text that takes one more argument: the time (ms)."""
    return with_prelude(text, _PRELUDE)
