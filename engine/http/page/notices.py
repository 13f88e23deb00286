"""What the page says after a change. An address carries a word and a number, and never a sentence of somebody's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.ops.admin import Altered

#: Word -> whether the change was made, and what is said of it.
_KNOWN: Mapping[str, tuple[bool, str]] = {
    "cancelled": (True, "The job was cancelled."),
    "runs-now": (True, "The job is claimable now."),
    "requeued": (True, "The job was requeued, with all its attempts."),
    "discarded": (True, "The job was discarded."),
    "removed": (True, "The job was removed."),
    "changed": (False, "The job is in another state by now, so nothing was done."),
    "held": (False, "Another job has its unique key, so it stays dead."),
    "corrupt": (False, "Nobody can read this job, so it cannot run; it can be discarded."),
    "bulk": (True, "{count} jobs were changed."),
    "paused": (True, "Paused: nothing is claimed; jobs in hand go on."),
    "resumed": (True, "Resumed."),
    "not-paused": (False, "There was no such pause."),
    "limit": (True, "The limit is set."),
    "no-limit": (True, "The limit was removed."),
    "schedule": (True, "The schedule was changed."),
    "ran": (True, "One more job of the schedule was enqueued."),
    "no-schedule": (False, "There is no schedule of this name any more."),
    "worker": (True, "The worker is told with its next sweep."),
}
#: Of a job that was changed, by the action.
_DONE = {
    "cancel": "cancelled",
    "run_now": "runs-now",
    "requeue": "requeued",
    "discard": "discarded",
    "remove": "removed",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence at the top of the page; `done`: the change was made."""

    done: bool
    sentence: str


def notice_of(query: Mapping[str, str]) -> Notice | None:
    """What an address says; None for nothing, and for a word that is not known."""
    known, count = _KNOWN.get(query.get("did", "")), query.get("count", "0")
    if known is None or not (count.isascii() and count.isdigit() and len(count) < 10):
        return None
    return Notice(known[0], known[1].format(count=f"{int(count):,}"))


def word_of(action: str, altered: Altered) -> str:
    """The word for what came of an action on a job."""
    return _DONE[action] if altered.done else altered.result
