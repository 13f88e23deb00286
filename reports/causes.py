"""Why a verdict is unknown, as a value, and what to do about each cause."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Cause(StrEnum):
    """What keeps a check from saying valid or violated."""

    INPUT = "input"
    CRASHED = "crashed"
    HOLES = "holes"
    CLOCK = "clock"
    SLOW = "slow"
    FAULT = "fault"
    MISSED = "missed"
    RECORDER = "recorder"
    NOTHING = "nothing"
    FULL = "full"
    OPEN = "open"


class Doubt(str):
    """A reason why a check cannot be judged whose cause is not that of the check's other doubts."""

    __slots__ = ("cause",)
    cause: Cause

    def __new__(cls, words: str, cause: Cause) -> Doubt:
        """The reason in words, with its cause."""
        made = super().__new__(cls, words)
        made.cause = cause
        return made


#: What to do, in the order in which it is said: what comes first spoils most.
REMEDIES: Mapping[Cause, str] = {
    Cause.INPUT: "the run could not be read: put right what the reason names, then judge it again",
    Cause.CRASHED: "the judge itself failed: judge it again, and report the reason with the run's folder if it comes again",
    Cause.HOLES: "rows are missing: run again, let it end by itself, keep every file of history/, with room on the disk",
    Cause.CLOCK: "the clock of a host is not known: let the harness reach each host during the whole run, and run again",
    Cause.SLOW: "the machine was too slow: run again where it is calmer, or at a lower rate",
    Cause.FAULT: "a fault was not carried out or not seen: put right what the reason names, or run again where it is calmer",
    Cause.MISSED: "a fault met no work that it could disturb: run longer, at a higher rate, or with another seed",
    Cause.RECORDER: "the recording cannot be trusted: run again where it is calmer, with less load for each process",
    Cause.NOTHING: "there was nothing to judge: run longer, or with a load that uses what the check is about",
    Cause.FULL: "handlers had all places: give workers or limits more, handlers that hang a timeout_ms, or send fewer such jobs",
    Cause.OPEN: "the run ended before it could be told: run longer, or where it is calmer",
}

#: The cause of a check's doubts that have none of their own; of all other checks it is `NOTHING`.
OF_CHECKS: Mapping[str, Cause] = {"H0": Cause.HOLES, "H1": Cause.FAULT, "H2": Cause.MISSED, "H3": Cause.RECORDER}

#: The one kind of violation rows of the checks of the history that concerns the load, and not the history.
LATE_LOAD = ("H3", "late load")

#: The kinds that show that the machine was too slow for the load.
SLOW_LOAD = (LATE_LOAD, ("H3", "dropped load"))

#: The cause of a level of rows in doubt, whatever the check.
OF_LEVELS: Mapping[str, Cause] = {"full": Cause.FULL, "astray": Cause.CLOCK, "unproven": Cause.HOLES, "slow": Cause.SLOW}


def of_doubt(check: str, doubt: str) -> Cause:
    """The cause of a reason why a check cannot be judged."""
    return doubt.cause if isinstance(doubt, Doubt) else OF_CHECKS.get(check, Cause.NOTHING)


def of_row(check: str, level: str, kind: str) -> Cause:
    """The cause of violation rows that are in doubt."""
    if (check, kind) in SLOW_LOAD:
        return Cause.SLOW
    return OF_LEVELS.get(level) or OF_CHECKS.get(check, Cause.OPEN)
