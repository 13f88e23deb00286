"""The hosts of a run, and how the monotonic clock of each stands to the harness's.

The clock of a host runs from its boot, so times of several hosts do not compare. Each process measures its clock against the
server's (`record.recorder`): the reply of a call has a server time that was read between its send and its arrival. The
harness measures its own clock once a second, and by the server's time both clocks are compared: what must be added to a host's
times lies in an interval as wide as both round trips. Between two measures it is interpolated.

Two clocks drift apart by at most `DRIFT_PPM`. So each measure bounds its neighbours as well, and measures that contradict each
other show a clock that jumped or does not run as a clock does. The server's own clock may jump: a measure counts only where
exactly one stretch of the harness's looks, without a jump in between, has its server time, or may have had it before the next.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reports.errors import row_of

#: The most by which two clocks drift apart, in millionths. A quartz is off by 100 at most, so two of them by 200. A clock that is
#: being set right by more than that is no clock to measure by.
DRIFT_PPM = 200

#: A clock that is known less well than that is not known: handlers take 30 ms.
ERROR_MAX_NS = 50_000_000

#: The server tells whole microseconds.
TOLD_NS = 1_000

_OFFSET = b'"offset"'


class Measure(NamedTuple):
    """At this instant something was between `low_ns` and `high_ns`."""

    at_ns: int
    low_ns: float
    high_ns: float

    @property
    def middle_ns(self) -> float:
        return (self.low_ns + self.high_ns) / 2

    @property
    def error_ns(self) -> float:
        return abs(self.high_ns - self.low_ns) / 2


@dataclass(frozen=True)
class Host:
    """A host, its files, and what is added to its times to have the harness's: `shifts_ns` at the instants `at_ns` of its clock.

    `error_ns`: by how much a time may be wrong then. `trouble`: why its clock is not known; empty when it is.
    """

    name: str
    boot_id: str
    files: tuple[str, ...]
    at_ns: tuple[int, ...] = ()
    shifts_ns: tuple[int, ...] = ()
    error_ns: int = 0
    trouble: str = ""

    def moved(self, times_ns: Any) -> Any:
        """Times of this host's clock on the harness's, as an array of integers."""
        times_ns = np.asarray(times_ns, np.int64)
        if not self.at_ns:
            return times_ns
        # Differences are small enough for a float, the times themselves are not.
        first_ns, first_shift_ns = self.at_ns[0], self.shifts_ns[0]
        at_ns, shifts_ns = (np.asarray(values, np.int64) for values in (self.at_ns, self.shifts_ns))
        more_ns = np.interp(times_ns - first_ns, at_ns - first_ns, shifts_ns - first_shift_ns)
        return times_ns + first_shift_ns + np.rint(more_ns).astype(np.int64)

    @cached_property
    def ahead_ms(self) -> float | None:
        """By how much its clock is ahead of the harness's; None when nobody knows."""
        return round(-self.shifts_ns[0] / 1e6, 3) if self.shifts_ns else None


@dataclass(frozen=True)
class _Opened:
    """What the first row of a file says."""

    file: Path
    host: str
    boot_id: str
    role: str

    @property
    def place(self) -> tuple[str, str]:
        """What tells hosts apart: clones of a machine may have one boot id in common."""
        return self.host, self.boot_id


def hosts_of(files: Sequence[Path]) -> tuple[Host, ...]:
    """The hosts of a run, the harness's first. Where there is only one, no more than the first line of each file is read.

    Some systems have no boot id: such a file is of the host of that name. What a file without an open row lacks is for H0 to say,
    except beside several hosts: then nobody knows the clock of its times.
    """
    opened = [found for file in files if (found := _opened(file)) is not None]
    known = [one for one in opened if one.boot_id]
    if not known:
        return ()
    reference = next((one for one in known if one.role == "harness"), known[0]).place
    of_name = {one.host: one.place for one in reversed(known)}
    by_place: dict[tuple[str, str], list[Path]] = {reference: []}
    for one in opened:
        if one.host or one.boot_id:
            place = one.place if one.boot_id else of_name.get(one.host, one.place)
            by_place.setdefault(place, []).append(one.file)
    names = {place: tuple(file.name for file in of_host) for place, of_host in by_place.items()}
    first = Host(*reference, names[reference])
    if len(by_place) == 1:
        return (first,)
    stretches = _steady(_read(by_place[reference])[0])
    others = [_compared(Host(*place, names[place]), *_read(by_place[place]), stretches) for place in names if place != reference]
    return (first, *others, *(_homeless(one.file) for one in opened if not one.host and not one.boot_id))


def _opened(file: Path) -> _Opened | None:
    """What the first row of a file says: nothing where it is no open row. None for an empty file, which has no times."""
    with file.open("rb") as content:
        line = content.readline()
    row = row_of(line) or {}
    told = row if row.get("kind") == "open" else {}
    host, boot_id, role = (str(told.get(name) or "") for name in ("host", "boot_id", "role"))
    return _Opened(file, host, boot_id, role) if line else None


def _homeless(file: Path) -> Host:
    """The host of a file that does not say where it was written."""
    trouble = f"nobody knows on which host history file {file.name} was written, and so what its times mean"
    return Host("not known", "", (file.name,), trouble=trouble)


class _Look(NamedTuple):
    """The server's clock at an instant: its time, and by how much it was ahead of the monotonic one."""

    at_ns: int
    srv_ns: int
    low_ns: float
    high_ns: float


def _read(files: Iterable[Path]) -> tuple[list[_Look], tuple[int, int]]:
    """The measures in some files of one host, in order, and its first and last instant."""
    looks: list[_Look] = []
    ends_ns: list[int] = []
    for file in files:
        first = last = b""
        with file.open("rb") as content:
            for line in content:
                first, last = first or line, line if line.endswith(b"\n") else last
                if _OFFSET in line and (look := _look(row_of(line) or {})) is not None:
                    looks.append(look)
        ends_ns += [at_ns for line in (first, last) if isinstance(at_ns := (row_of(line) or {}).get("t_ns"), int)]
    ends_ns += [look.at_ns for look in looks]
    return sorted(looks), (min(ends_ns, default=0), max(ends_ns, default=0))


def _look(row: dict[str, Any]) -> _Look | None:
    """The measure of an offset row; None for another row."""
    sent_ns, done_ns, srv_us = (row.get(name) for name in ("first_send_ns", "done_ns", "srv_us"))
    if not (isinstance(sent_ns, int) and isinstance(done_ns, int) and isinstance(srv_us, int)) or row.get("kind") != "offset":
        return None
    return _Look((sent_ns + done_ns) // 2, srv_us * 1_000, srv_us * 1_000 - done_ns, srv_us * 1_000 + TOLD_NS - sent_ns)


class _Stretch(NamedTuple):
    """Looks of the harness between which the server's clock did not jump, and the server times that it may have shown before the
    jump after them and after the jump before them."""

    looks: list[_Look]
    since_ns: int
    until_ns: int


def _steady(looks: Sequence[_Look]) -> list[_Stretch]:
    """The looks of the harness in stretches."""
    runs: list[list[_Look]] = []
    for look in looks:
        before = runs[-1][-1] if runs else None
        if before is None or before.srv_ns > look.srv_ns or _contradiction_ns(_bounds(before), _bounds(look)) > 0:
            runs.append([])
        runs[-1].append(look)
    gaps_ns = [0, *(after[0].at_ns - before[-1].at_ns for before, after in pairwise(runs)), 0]
    sides = zip(runs, gaps_ns, gaps_ns[1:], strict=False)
    return [_Stretch(run, run[0].srv_ns - before_ns, run[-1].srv_ns + after_ns) for run, before_ns, after_ns in sides]


def _bounds(look: _Look) -> Measure:
    return Measure(look.at_ns, look.low_ns, look.high_ns)


def _drift_ns(span_ns: float) -> float:
    """How far two clocks may drift apart in this time."""
    return abs(span_ns) * DRIFT_PPM / 1e6


def _contradiction_ns(one: Measure, other: Measure) -> float:
    """By how much two measures differ beyond what is possible; not above 0 when they agree."""
    apart_ns = max(one.low_ns - other.high_ns, other.low_ns - one.high_ns)
    return apart_ns - _drift_ns(one.at_ns - other.at_ns)


def _compared(host: Host, looks: Sequence[_Look], ends_ns: tuple[int, int], stretches: Sequence[_Stretch]) -> Host:
    """The host, its clock compared with the harness's."""
    found = [shift for look in looks if (shift := _shift(look, stretches)) is not None]
    if len(found) < 2:
        count = f"{len(found)} of its {len(looks)} clock measures can" if looks else "it has no clock measure that could"
        words = f"nothing bounds the clock of host {host.name} (boot {host.boot_id[:8]}): {count} be compared with the harness's"
        return Host(host.name, host.boot_id, host.files, trouble=f"{words}, and two are needed")
    trouble = _drifted(host.name, found, ends_ns[0])
    known = found if trouble else _narrowed(found)
    error_ns = _error_ns(known, ends_ns)
    if not trouble and error_ns > ERROR_MAX_NS:
        known_ms, most_ms = error_ns / 1e6, ERROR_MAX_NS / 1e6
        trouble = f"the clock of host {host.name} is only known to {known_ms:.1f} ms, which is more than {most_ms:g} ms"
    shifts_ns = tuple(round(one.middle_ns) for one in known)
    return Host(host.name, host.boot_id, host.files, tuple(one.at_ns for one in known), shifts_ns, error_ns, trouble)


def _shift(look: _Look, stretches: Sequence[_Stretch]) -> Measure | None:
    """What must be added to the host's time at a measure; None when the harness did not see the server's clock there, or it may
    have been there twice."""
    covering = [one.looks for one in stretches if one.since_ns <= look.srv_ns <= one.until_ns]
    if len(covering) != 1 or len(run := covering[0]) < 2 or not run[0].srv_ns <= look.srv_ns <= run[-1].srv_ns:
        return None
    place = min(bisect_right(run, look.srv_ns, key=attrgetter("srv_ns")), len(run) - 1)
    sides = [(one, _drift_ns(look.srv_ns - one.srv_ns)) for one in run[place - 1 : place + 1]]
    low_ns, high_ns = max(one.low_ns - drift for one, drift in sides), min(one.high_ns + drift for one, drift in sides)
    return Measure(look.at_ns, look.low_ns - high_ns, look.high_ns - low_ns)


def _drifted(name: str, found: Sequence[Measure], since_ns: int) -> str:
    """The pair of measures that contradict each other most, in words; empty when none do."""
    worst: tuple[float, Measure, Measure] | None = None
    # Of all before, those that are the hardest to agree with for one that is above, and for one that is below.
    below = above = found[0]
    for one in found[1:]:
        for before in (below, above):
            excess_ns = _contradiction_ns(before, one)
            if excess_ns > 0 and (worst is None or excess_ns > worst[0]):
                worst = excess_ns, before, one
        if one.high_ns - _drift_ns(one.at_ns) < below.high_ns - _drift_ns(below.at_ns):
            below = one
        if one.low_ns + _drift_ns(one.at_ns) > above.low_ns + _drift_ns(above.at_ns):
            above = one
    if worst is None:
        return ""
    excess_ns, one, other = worst
    moved_ms = (one.middle_ns - other.middle_ns) / 1e6
    most_ms = abs(moved_ms) - excess_ns / 1e6
    from_s, to_s = ((measure.at_ns - since_ns) / 1e9 for measure in (one, other))
    side = "ahead" if moved_ms > 0 else "behind"
    return (
        f"the clock of host {name} went {abs(moved_ms):.1f} ms {side} of the harness's between {from_s:.1f} and {to_s:.1f} s "
        f"after its first row: it jumped, or does not run evenly. A drift of {DRIFT_PPM} ppm and the round trips of both "
        f"measures allow {most_ms:.1f} ms"
    )


def _narrowed(found: Sequence[Measure]) -> list[Measure]:
    """Each measure within what its neighbours allow."""
    for _ in range(2):
        narrow = [found[0]]
        for one in found[1:]:
            before, drift_ns = narrow[-1], _drift_ns(one.at_ns - narrow[-1].at_ns)
            narrow.append(
                Measure(one.at_ns, max(one.low_ns, before.low_ns - drift_ns), min(one.high_ns, before.high_ns + drift_ns))
            )
        found = narrow[::-1]
    return list(found)


def _error_ns(known: Sequence[Measure], ends_ns: tuple[int, int]) -> int:
    """By how much a time that was moved may be wrong: the error of a measure, and what its clock may have done until the next."""
    first, last = known[0], known[-1]
    errors = [one.error_ns + _drift_ns(one.at_ns - end_ns) for one, end_ns in ((first, ends_ns[0]), (last, ends_ns[1]))]
    for one, other in pairwise(known):
        moved_ns = max(_drift_ns(other.at_ns - one.at_ns), abs(other.middle_ns - one.middle_ns))
        errors.append(max(one.error_ns, other.error_ns) + moved_ns)
    return math.ceil(max(errors))
