"""The functions of Bull's format by themselves: one script for each call, with nothing around them but their tools."""

import json
from typing import Any

import redis

from engine.redis.scripts import functions_of_formats, layers_of, linked_functions, scripts_folder

_NOW_MS = 1_795_233_060_000
_FUNCTIONS = [*functions_of_formats(scripts_folder() / "foreign")]

_SCRIPT = f"""
{linked_functions(["wire", *_FUNCTIONS], layers_of(scripts_folder(), "bull"))}
local functions = {{ {", ".join(f"{name} = {name}" for name in _FUNCTIONS)} }}
-- cjson keeps 14 digits of a number.
local function told(value)
  if type(value) == 'number' then return string.format('%.0f', value) end
  if type(value) ~= 'table' then return value end
  local copy = {{}}
  for name, inner in pairs(value) do copy[name] = told(inner) end
  return copy
end
local given = cjson.decode(ARGV[1])
local count = #given
for at = 1, count do
  if given[at] == cjson.null then given[at] = nil end
end
local bull = wire('bull:q:', 'bull:q:ironclaim:', 'q', '', '', tonumber(ARGV[2]))
local one, other = functions['wire_' .. given[1]](bull, unpack(given, 2, count))
return cjson.encode({{ one == nil and cjson.null or told(one), told(other) }})
"""


def wired(client: redis.Redis, method: str, *arguments: Any, now_ms: int = _NOW_MS) -> Any:
    """What a function returns, its first value; of `candidates` both. Numbers come as text, an empty table as {}."""
    found = json.loads(client.eval(_SCRIPT, 0, json.dumps([method, *arguments]), now_ms))
    return found if method == "candidates" else found[0]
