-- A time in ms since 1970 as UTC text: 2026-11-22T03:14:19.123Z, and with `whole` without the fraction.
local function rfc3339(ms, whole)
  local seconds = math.floor(ms / 1000)
  local days, rest = math.floor(seconds / 86400), seconds % 86400
  -- Days since 1970 as a date, in eras of 400 years that begin with March: leap days then come last.
  local shifted = days + 719468
  local era = math.floor(shifted / 146097)
  local day_of_era = shifted - era * 146097
  local year = math.floor((day_of_era - math.floor(day_of_era / 1460) + math.floor(day_of_era / 36524) - math.floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * day_of_year + 2) / 153)
  local day = day_of_year - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  local text = string.format('%04d-%02d-%02dT%02d:%02d:%02d', year, month, day, math.floor(rest / 3600), math.floor(rest / 60) % 60, rest % 60)
  return text .. (whole and '' or string.format('.%03d', ms % 1000)) .. 'Z'
end
