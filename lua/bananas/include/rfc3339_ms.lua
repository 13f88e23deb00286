-- A time as RFC 3339 has it, in ms since 1970; nil for what is none.
local function rfc3339_ms(text)
  local year, month, day, hour, minute, second, rest = string.match(text or '', '^(%d%d%d%d)-(%d%d)-(%d%d)[Tt ](%d%d):(%d%d):(%d%d)(.*)$')
  if not year then return nil end
  local fraction, zone = string.match(rest, '^(%.%d+)(.*)$')
  zone = zone or rest
  local sign, zone_hour, zone_minute = string.match(zone, '^([+-])(%d%d):(%d%d)$')
  if not sign and zone ~= 'Z' and zone ~= 'z' then return nil end
  -- Days since 1970 in years that begin with March.
  local y, m = tonumber(year), tonumber(month)
  if m <= 2 then y = y - 1 end
  local of_year = math.floor((153 * ((m + 9) % 12) + 2) / 5) + tonumber(day) - 1
  local days = 365 * y + math.floor(y / 4) - math.floor(y / 100) + math.floor(y / 400) + of_year - 719468
  local offset_s = sign and (sign == '-' and -1 or 1) * (tonumber(zone_hour) * 3600 + tonumber(zone_minute) * 60) or 0
  local seconds = days * 86400 + tonumber(hour) * 3600 + tonumber(minute) * 60 + tonumber(second) - offset_s
  return seconds * 1000 + math.floor(tonumber('0' .. (fraction or '')) * 1000)
end
