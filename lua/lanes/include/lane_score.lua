-- Rule 16: bands of 2^49, higher priority first; inside a band FIFO counts up from its middle, LIFO (flag 1) down.
-- The greatest score is 10 * 2^49 = 5.6e15 < 2^53, so a double holds every score exactly.
local function lane_score(priority, flags, sequence)
  local middle = (10 - priority) * 562949953421312 + 281474976710656 -- anchor: bands-are-2-49-wide
  if flags % 2 == 1 then return middle - sequence end -- anchor: lifo-jobs-go-in-front
  return middle + sequence
end
