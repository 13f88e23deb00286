"""When the load had caught up with a fault, told by the history: from then on its lateness is its own again.

What should have been sent while the network was away, or while every connection was being made again, is late because of the
fault, and so is what waits behind it for its turn. That goes on until nothing is late for a moment, but not beyond a bound: load
that has not caught up by then is simply late.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.facts import LOAD, MS, SLOT_NS, Run
from reports.file_facts import LAG_STEP_NS
from reports.windows import Span, Window, windows

#: Nothing is sent that is more than a second late: so long after the heal, what is late may be due to the fault.
CATCH_UP_NS = 1_000 * MS

#: The load has caught up when nothing that was meant to be sent in so long a time was late.
CALM_NS = 1_000 * MS

#: By then at the latest, counted from when the fault was seen to have healed, whatever is late. The load goes on for six seconds
#: or more after the last heal: what never catches up is late for two of them, and so for more than one job in a hundred.
CATCH_UP_MAX_NS = 4_000 * MS

#: Bound of the send lag. Machines that others kept busy came to 3 to 47 ms.
LAG_MAX_MS = 150

#: Where the calibration before the load saw more than a third of that, the bound is so many times what it saw, and at most this:
#: three times the 100 ms that a calibration accepts. Latencies count from the intended instant, so the lag is in them; the bound
#: is there so that they are not made of it.
LAG_OF_CALIBRATION = 3
LAG_HIGHEST_MS = 300


def lag_max_ms(run: Run) -> int:
    """Bound of the send lag on the machine of the run."""
    seen_ms = (run.spec.get("calibration") or {}).get("lag_ms", 0)
    return round(min(max(LAG_MAX_MS, LAG_OF_CALIBRATION * seen_ms), LAG_HIGHEST_MS))


def spans(run: Run) -> tuple[Span, ...]:
    """For each fault, from when to when the lateness of the load is due to it."""
    late_ns = late(run)
    return tuple((window.inject_ns, caught_up_ns(window, late_ns)) for window in windows(run))


def caught_up_ns(window: Window, late_ns: Sequence[int]) -> int:
    """When the load had caught up with a fault: the end of what was late, without a moment of calm, since it was seen to have
    healed. `late_ns`: where something was late, as of `late`."""
    last_ns = window.healed_ns
    for at_ns in late_ns:
        if window.healed_ns <= at_ns + SLOT_NS and at_ns < window.next_ns:
            if at_ns - last_ns >= CALM_NS:
                break
            last_ns = at_ns + SLOT_NS
    return min(max(last_ns, window.healed_ns + CATCH_UP_NS), window.healed_ns + CATCH_UP_MAX_NS)


def late(run: Run) -> list[int]:
    """The parts of time, by their begin, in which something should have been sent and was late, or was not sent at all."""
    least_ns = lag_max_ms(run) * MS
    files = [run.files[process.file] for process in run.processes if process.role in LOAD and process.file in run.files]
    slots = {slot for file in files for slot, steps in file.lags if steps * LAG_STEP_NS >= least_ns}
    return sorted(slot * SLOT_NS for slot in slots | {drop.t_ns // SLOT_NS for drop in run.drops})
