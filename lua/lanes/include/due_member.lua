-- Rule 16: a member of `due` starts with the sequence as 10 base-32 digits, so equal due times keep the order of enqueue.
local function due_member(sequence, id)
  local alphabet, digits = '0123456789abcdefghijklmnopqrstuv', {}
  for place = 10, 1, -1 do
    local digit = sequence % 32
    digits[place] = string.sub(alphabet, digit + 1, digit + 1)
    sequence = (sequence - digit) / 32
  end
  return table.concat(digits) .. id
end
