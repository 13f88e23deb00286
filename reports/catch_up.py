"""Find in the history when the load had caught up after a fault: sends that are late from then on are not due to the fault.

A send that was due while the network was down, or while connections were being reopened, is late because of the fault, and so
are the sends queued behind it. This lasts until no send was late for `CALM_NS`, and at most `CATCH_UP_MAX_NS`: load that has
not caught up by then counts as late.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.facts import LOAD, MS, SLOT_NS, Run
from reports.file_facts import LAG_STEP_NS
from reports.windows import Span, Window, windows

#: Least time after the heal for which lateness is attributed to the fault: the load drops sends that are over a second late.
CATCH_UP_NS = 1_000 * MS

#: The load has caught up when no send that was due within this time was late.
CALM_NS = 1_000 * MS

#: Upper bound of the catch-up time, from when the fault was seen to have healed. The load goes on for at least six seconds
#: after the last heal, so load that never catches up is late for two of them, which is more than one job in a hundred.
CATCH_UP_MAX_NS = 4_000 * MS

#: Bound of the send lag in ms. Machines busy with other work measured 3 to 47 ms.
LAG_MAX_MS = 150

#: When the calibration before the load measured more than a third of that, the bound is LAG_OF_CALIBRATION times the measured
#: lag, but at most LAG_HIGHEST_MS: three times the 100 ms that a calibration accepts. Latencies count from the intended instant
#: and so contain the lag; the bound keeps it from dominating them.
LAG_OF_CALIBRATION = 3
LAG_HIGHEST_MS = 300


def fault_spans(run: Run, *, besides: str = "") -> list[Span]:
    """The time in which each fault, besides those of one kind, makes its victims late: from its inject until shortly after it was
    seen to have healed."""
    return [(window.inject_ns, window.healed_ns + CATCH_UP_NS) for window in windows(run) if window.name != besides]


def lag_max_ms(run: Run) -> int:
    """Bound of the send lag, in ms, on the machine of the run."""
    seen_ms = (run.spec.get("calibration") or {}).get("lag_ms", 0)
    return round(min(max(LAG_MAX_MS, LAG_OF_CALIBRATION * seen_ms), LAG_HIGHEST_MS))


def spans(run: Run) -> tuple[Span, ...]:
    """For each fault, the span in which late sends are due to it: from its inject until the load had caught up."""
    late_ns = late(run)
    return tuple((window.inject_ns, caught_up_ns(window, late_ns)) for window in windows(run))


def caught_up_ns(window: Window, late_ns: Sequence[int]) -> int:
    """When the load had caught up after a fault: the end of the late slots that follow the heal without `CALM_NS` between them,
    within the bounds above. `late_ns`: the late slots, as returned by `late`."""
    last_ns = window.healed_ns
    for at_ns in late_ns:
        if window.healed_ns <= at_ns + SLOT_NS and at_ns < window.next_ns:
            if at_ns - last_ns >= CALM_NS:
                break
            last_ns = at_ns + SLOT_NS
    return min(max(last_ns, window.healed_ns + CATCH_UP_NS), window.healed_ns + CATCH_UP_MAX_NS)


def late(run: Run) -> list[int]:
    """Start times, in ns and ascending, of the slots in which a send was due that was late or was dropped."""
    least_ns = lag_max_ms(run) * MS
    files = [run.files[process.file] for process in run.processes if process.role in LOAD and process.file in run.files]
    slots = {slot for file in files for slot, steps in file.lags if steps * LAG_STEP_NS >= least_ns}
    return sorted(slot * SLOT_NS for slot in slots | {drop.t_ns // SLOT_NS for drop in run.drops})
