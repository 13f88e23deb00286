-- What an administration call has told when it was done: the words of its record.
local function told_before(op)
  local words = {}
  for word in string.gmatch(redis.call('GET', op) or '', '%S+') do words[#words + 1] = word end
  return words
end
