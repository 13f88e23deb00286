"""How the page writes numbers, lengths of time and instants."""

from __future__ import annotations

from engine.errors import utc

#: Instead of a value that is not known: an en dash.
UNKNOWN = "\u2013"
#: Units of lengths, the longest first.
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
#: Characters of a name that a table shows; the whole one is in its title.
_SHORT = 64


def number(value: float | None) -> str:
    """`12,345`, or a dash where it is not known."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.1f}"


def length(ms: float | None) -> str:
    """`950 ms`, `4.2 s`, `12 min`, `3 h 20 min`, `5 d`, or a dash where it is not known."""
    if ms is None:
        return UNKNOWN
    if ms < 1_000:
        return f"{ms:.0f} ms" if ms >= 10 or float(ms).is_integer() else f"{ms:.1f} ms"
    for place, (unit, size) in enumerate(_UNITS):
        if ms < size:
            continue
        if unit == "s":
            return f"{ms / 1000:.1f}".removesuffix(".0") + " s"
        whole = int(ms // size)
        smaller, smaller_size = _UNITS[place + 1]
        rest = int(ms % size // smaller_size)
        return f"{whole} {unit} {rest} {smaller}" if rest and whole < 10 else f"{whole} {unit}"
    raise AssertionError("a second is the smallest unit, and ms is larger")


def from_now(ms: int, now_ms: int) -> str:
    """`3 min ago`, `in 12 s`, `now`."""
    apart_ms = ms - now_ms
    if abs(apart_ms) < 1_000:
        return "now"
    whole_ms = abs(apart_ms) // 1_000 * 1_000
    return f"in {length(whole_ms)}" if apart_ms > 0 else f"{length(whole_ms)} ago"


def instant(ms: int) -> str:
    """`2026-05-01 12:00:00.250 UTC`."""
    return f"{utc(ms):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"


def machine_instant(ms: int) -> str:
    """An instant as HTML's `time` takes it."""
    return f"{utc(ms):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def short(text: str) -> str:
    """A text as a table has room for it."""
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def last_line(error: str) -> str:
    """The line of an error that says most."""
    return (error.strip().splitlines() or [""])[-1]
