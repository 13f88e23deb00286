"""Which ticks of a due schedule make a job, and which are missed. Pure code, a part of the state machine."""

from __future__ import annotations

from engine.calendar import UnknownZone, calendar
from engine.ops import schedules
from engine.ops.schedules import DueSchedule, Tick, TickPolicy, Timing

#: Jobs of one tick call, and so the most ticks that are made up for at once; older ones count as missed.
CATCH_UP_MAX = 100
_ERROR_CHARACTERS_MAX = 200


def tick(due: DueSchedule, now_ms: int, incarnation: str, counter: int) -> Tick:
    """The call that makes the jobs of a due schedule and moves it on; one that cannot be read is set aside
    with the reason."""
    try:
        timing = schedules.from_stored(Timing, due.timing)
        policy = schedules.from_stored(TickPolicy, due.policy)
        known = calendar(timing)
        seen, total = known.between(due.expected_ms, now_ms, due.anchor_ms, CATCH_UP_MAX)
        next_ms = known.after(seen[-1], due.anchor_ms)
    except (ValueError, ArithmeticError) as error:
        # Also what datetime raises for times beyond its calendar.
        text = str(error)[:_ERROR_CHARACTERS_MAX] or type(error).__name__
        return Tick(incarnation, counter, due.schedule, due.version, due.expected_ms, (), 0, 0, "allow", text)
    ticks = _wanted(seen, now_ms - due.expected_ms > policy.late_ms, now_ms, policy)
    missed = total - len(ticks)
    return Tick(
        incarnation,
        counter,
        due.schedule,
        due.version,
        due.expected_ms,
        ticks,
        next_ms,
        missed,
        policy.overlap,
    )


def zone_unknown(due: DueSchedule) -> bool:
    """Whether nothing but its zone keeps this machine from reading a schedule: one that has it, or newer
    ones, can."""
    try:
        calendar(schedules.from_stored(Timing, due.timing))
    except UnknownZone:
        return True
    except ValueError:
        return False
    return False


def _wanted(seen: list[int], late: bool, now_ms: int, policy: TickPolicy) -> tuple[int, ...]:
    """Those of the last due ticks that make a job: all of them, unless the first due one is late."""
    if late and policy.missed == "skip":
        return tuple(tick_ms for tick_ms in seen if now_ms - tick_ms <= policy.late_ms)
    return tuple(seen[-1:] if late and policy.missed == "once" else seen)
