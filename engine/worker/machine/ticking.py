"""What a scheduler makes of a schedule that is due: its tick, with the jobs that are to run and the tick after them. Pure."""

from __future__ import annotations

from engine.calendar import UnknownZone, calendar
from engine.models import lanes_schedules
from engine.operations import DueSchedule, Tick, TickPolicy, Timing

#: Jobs of one tick call, and the most that are made up for after a time without schedulers.
CATCH_UP_MAX = 100
_ERROR_CHARACTERS_MAX = 200


def tick(due: DueSchedule, now_ms: int, incarnation: str, counter: int) -> Tick:
    """The call that makes the jobs of a due schedule and moves it on; one that cannot be read is set aside with the reason."""
    try:
        timing = lanes_schedules.read(Timing, due.timing)
        policy = lanes_schedules.read(TickPolicy, due.policy)
        known = calendar(timing)
        seen, more = known.between(due.expected_ms, now_ms, due.anchor_ms, CATCH_UP_MAX)
        next_ms = known.after(seen[-1], due.anchor_ms)
    except (ValueError, ArithmeticError) as error:
        # Also what croniter and datetime raise for times beyond their calendars.
        text = str(error)[:_ERROR_CHARACTERS_MAX] or type(error).__name__
        return Tick(incarnation, counter, due.schedule, due.version, due.expected_ms, (), 0, 0, "allow", text)
    ticks = _wanted(seen, more, now_ms, policy)
    missed = len(seen) - len(ticks) + more
    return Tick(incarnation, counter, due.schedule, due.version, due.expected_ms, ticks, next_ms, missed, policy.overlap)


def zone_unknown(due: DueSchedule) -> bool:
    """Whether nothing but its zone keeps this machine from reading a schedule: one that has it, or newer ones, can."""
    try:
        calendar(lanes_schedules.read(Timing, due.timing))
    except UnknownZone:
        return True
    except ValueError:
        return False
    return False


def _wanted(seen: list[int], more: bool, now_ms: int, policy: TickPolicy) -> tuple[int, ...]:
    """Which of the due ticks make a job. All of them while none is late."""
    in_time = [tick_ms for tick_ms in seen if now_ms - tick_ms <= policy.late_ms]
    if len(in_time) == len(seen) and not more:
        return tuple(seen)
    if policy.missed == "skip":
        return tuple(in_time)
    return tuple(seen if policy.missed == "all" else seen[-1:])
