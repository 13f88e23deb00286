"""Which errors are of one kind: those that differ in ids, numbers, addresses and quoted values alone. Dead
jobs are grouped by it wherever they are grouped, and a filter that is given one of them finds its group."""

from __future__ import annotations

import re

#: Stands in a kind for what was taken out.
TAKEN_OUT = "…"
#: The kind of a job that died without an error.
NO_ERROR = "no error"
#: Of an error's line so much is read: the engine stores no more.
CHARACTERS_MAX = 1_000

#: The class at the start, whose digits are part of its name: `botocore.exceptions.S3UploadFailedError`.
_CLASS = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*[a-z](?=:|\Z)")
_QUOTED = "|".join(rf"(?<!\w){q}(?:\\.|[^\\{q}]|{q}(?=\w))*{q}(?!\w)" for q in "'\"`")
_IPV6 = r"(?:[0-9a-f]{0,4}:){2,7}(?:\d+(?:\.\d+){3}|[0-9a-f]{0,4})(?:%\w+)?"
#: Addresses with a scheme, quoted values, addresses of mail, UUIDs, IPv6 and MAC addresses, and words, of
#: which those with a digit are looked at.
_TAKEN = re.compile(
    rf"""
      (?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s'"`<>]+
    | {_QUOTED}
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)*
    | \b[0-9a-f]{{8}}-(?:[0-9a-f]{{4}}-){{3}}[0-9a-f]{{12}}\b
    | \[{_IPV6}\](?::\d+)?
    | (?<![\w:])(?=[0-9a-f:.]*[0-9a-f]){_IPV6}(?![\w:])
    | (?<!\w)(?<!\w-)(?P<word>\w+(?:-\w+)*)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_UNITS = "ns us µs ms s secs? seconds? min mins? minutes? h hrs? hours? d days? B bytes? [kKMGT]i?B"
_JOINED = re.compile(
    rf"""
      {TAKEN_OUT}(?:(?:[./_+-]|\s*[,:;]\s*){TAKEN_OUT})+   # versions, instants, addresses with a port, lists
    | (?<![\w{TAKEN_OUT}])[-+.]{TAKEN_OUT}                 # a sign
    | {TAKEN_OUT}\s?(?:{"|".join(_UNITS.split())})\b       # a length of time or a size
    | {TAKEN_OUT}(?:\s?{TAKEN_OUT})+                       # `3 h 20 min`
    """,
    re.VERBOSE,
)
_HEX = re.compile(r"(?:0x)?[0-9a-f]{8,}|(?=[a-f]*\d)[0-9a-f]{6,}|0x[0-9a-f]+", re.IGNORECASE)
_NUMBERED = re.compile(r"([^\W\d]+)\d+")
_NUMBER = re.compile(r"\d+[^\W\d_]{0,3}")


def main_line(error: str) -> str:
    """The line of an error that says most: the first one where a class begins it, else the last one, as of a
    stack trace."""
    lines = error.strip().splitlines() or [""]
    return lines[0] if _CLASS.match(lines[0]) else lines[-1]


def error_kind(error: str) -> str:
    """The main line of an error without ids, numbers, addresses, lengths of time and quoted values. The kind
    of a kind is itself."""
    line = main_line(error)[:CHARACTERS_MAX]
    named = _CLASS.match(line)
    head = named[0] if named else ""
    before, rest = "", line[len(head) :]
    # Each pass takes something out, so it ends: a quote that stood behind a digit is seen in the next one.
    while rest != before:
        before, rest = rest, _JOINED.sub(TAKEN_OUT, _TAKEN.sub(_without, rest))
    return head + " ".join(rest.split()) or NO_ERROR


def _without(found: re.Match[str]) -> str:
    if found["scheme"]:
        return found["scheme"] + TAKEN_OUT
    return TAKEN_OUT if found["word"] is None else _word(found["word"])


def _word(word: str) -> str:
    """`user7` -> `user…`, `order-7` -> `order-…`, `worker-a1b2c3` -> `worker-…`; what has no digit stays."""
    kept: list[str] = []
    for part in word.split("-"):
        if _HEX.fullmatch(part):
            return "-".join([*kept, TAKEN_OUT])
        if not any(map(str.isdigit, part)):
            kept.append(part)
        elif numbered := _NUMBERED.fullmatch(part):
            kept.append(numbered[1] + TAKEN_OUT)
        elif _NUMBER.fullmatch(part):
            kept.append(TAKEN_OUT)
        else:
            # An id of letters and digits: what follows is a part of it.
            return "-".join([*kept, TAKEN_OUT])
    return "-".join(kept)
