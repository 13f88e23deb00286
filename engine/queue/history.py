"""The history of a queue: how its jobs have ended, for whoever asks what became of order 7. Without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field, fields, replace
from typing import Any, Literal, TypedDict, get_args

from engine import validate
from engine.errors import Malformed, ScriptFault
from engine.models.model import Names
from engine.ops.admin import HistoryRule, SetHistory
from engine.ops.base import frozen, whole
from engine.ops.looks import HistoryPart, ListHistory
from engine.serializers import BUILT_IN, JSON, Serializers, UnreadablePayload
from engine.validate import Milliseconds

#: Entries that a queue keeps at most, the longest payload that an entry may have, and names that are meant.
KEPT_MAX = 1_000_000
PAYLOAD_BYTES_MAX = 16_384
NAMES_MAX = 100
#: Entries of one answer, those that are looked at for it, and those that one call reads.
LISTED_MAX = 1_000
LOOKED_MAX = 100_000
_READ = 500

#: How a job may have ended, as its entry says.
PastOutcome = Literal["finished", "dead", "cancelled", "discarded", "skipped", "rerouted", "expired"]
OUTCOMES: tuple[PastOutcome, ...] = get_args(PastOutcome)
_PLACE = re.compile(r"(\d{1,15}):(\d{1,16}):([a-z]+):(.+)", re.DOTALL)
_FIELDS, _NUMBERS = 11, 7


#: Fields of an entry that hold its payload.
_NOT_TOLD = ("stored", "serializer", "serializers")


@frozen
class PastJob:
    """How a job has ended. Times are ms of the server's clock since 1970, 0 where there is none.

    A job has an entry for each of its ends: a dead one that is requeued and then finishes has two. `worker`
    is the one that had it last, '' where nobody had. `started_ms` is when the run that ended it was claimed,
    0 where no run did: it was cancelled while it waited. `claims`, `failures` and `crashes` are as JobInfo
    has them. `payload_bytes` is how long its payload was; `stored` is the payload where that was kept, else
    None. `place` orders the entries: `queue.history.list(before=entry.place)` goes on behind this one.
    """

    place: str = field(compare=False)
    id: str
    outcome: str
    name: str
    key: str
    unique: str
    worker: str
    enqueued_ms: int
    due_ms: int
    started_ms: int
    ended_ms: int
    claims: int
    failures: int
    crashes: int
    payload_bytes: int
    error: str = ""
    serializer: str = ""
    stored: bytes | None = field(default=None, repr=False)
    serializers: Serializers = field(default=BUILT_IN, repr=False, compare=False)

    @property
    def waited_ms(self) -> int | None:
        """From when it could be claimed first to the start of the run that ended it, so with the runs before
        that one and their back-offs; to its end where no worker ever had it; else None."""
        until_ms = self.started_ms or (0 if self.claims else self.ended_ms)
        return max(0, until_ms - max(self.enqueued_ms, self.due_ms)) if until_ms else None

    @property
    def ran_ms(self) -> int | None:
        """How long the run took that ended it, from its claim to its end; None where no run did."""
        return max(0, self.ended_ms - self.started_ms) if self.started_ms else None

    @property
    def told(self) -> dict[str, Any]:
        """The entry without its payload, as an answer in JSON has it."""
        names = [each.name for each in fields(self) if each.name not in _NOT_TOLD]
        return {name: getattr(self, name) for name in (*names, "waited_ms", "ran_ms")}

    @property
    def payload(self) -> Any:
        """What was enqueued, as a handler of this queue reads it; an UnreadablePayload that says why where
        that was not kept, or cannot be read."""
        if self.stored is None:
            return UnreadablePayload(f"it is not kept of this job; it had {self.payload_bytes} bytes", b"")
        return self.serializers.look("" if self.serializer == JSON else self.serializer, self.stored)


class PastJobs(list[PastJob]):
    """How jobs have ended, the latest first. `rule`: what the queue keeps of ends; None where nothing."""

    def __init__(self, jobs: Iterable[PastJob], rule: HistoryRule | None) -> None:
        super().__init__(jobs)
        self.rule = rule


def set_history(
    names: Names, keep: object, age_ms: object, only: object, payload_bytes: object
) -> SetHistory:
    """Keep how jobs end. Raises Malformed."""
    most = validate.DURATION_MS_MAX
    bound = f"up to {NAMES_MAX} names of jobs, or None for all"
    meant = () if only is None else tuple(map(names.job_name, validate.items("names", only, bound)))
    if only is not None and not 1 <= len(meant) <= NAMES_MAX:
        raise Malformed("names", f"{len(meant)} names", bound)
    rule = HistoryRule(
        validate.integer("keep", keep, 1, KEPT_MAX),
        0 if age_ms is None else validate.duration_ms("age_ms", age_ms, 1, most),
        validate.integer("payload_bytes", payload_bytes, 0, PAYLOAD_BYTES_MAX),
        tuple(dict.fromkeys(meant)),
    )
    return SetHistory(rule)


class HistoryOptions(TypedDict, total=False):
    """Which entries of a history a list has: at most `limit` (100, up to 1,000), the latest first. Only those
    of jobs with this id, key or unique key (`key`), of a `name`, with an `outcome`, that ended so long ago,
    or behind the one with the place `before`."""

    key: str | None
    name: str | None
    outcome: str | None
    older_than_ms: Milliseconds
    newer_than_ms: Milliseconds | None
    before: str | None
    limit: int


def wanted(
    names: Names,
    *,
    key: object = None,
    name: object = None,
    outcome: object = None,
    older_than_ms: object = 0,
    newer_than_ms: object = None,
    before: object = None,
    limit: object = 100,
) -> tuple[ListHistory, tuple[int, bytes] | None, int]:
    """What HistoryOptions ask for: what a shard is asked first, the place behind which the entries are, and
    their number. Raises Malformed."""
    if outcome is not None and outcome not in OUTCOMES:
        raise Malformed("outcome", outcome, f"one of {', '.join(OUTCOMES)}")
    place, most = None if before is None else _place(before), validate.DURATION_MS_MAX
    asked = ListHistory(
        0 if newer_than_ms is None else validate.duration_ms("newer_than_ms", newer_than_ms, 1, most),
        validate.duration_ms("older_than_ms", older_than_ms, 0, most),
        validate.INSTANT_MS_MAX if place is None else place[0],
        0,
        _READ,
        "" if key is None else names.known_id(key),
        "" if name is None else names.job_name(name),
        "" if outcome is None else str(outcome),
    )
    return asked, place, validate.integer("limit", limit, 1, LISTED_MAX)


def following(asked: ListHistory, part: HistoryPart) -> ListHistory | None:
    """What comes behind a part of the history of a shard; None where there is nothing."""
    if not part.read:
        return None
    passed = part.same + (asked.offset if part.last_ms == asked.until_ms else 0)
    return replace(asked, until_ms=part.last_ms, offset=passed)


def meant(part: HistoryPart, before: tuple[int, bytes] | None) -> list[tuple[int, bytes]]:
    """The entries of a part behind a place."""
    return [entry for entry in part.found if before is None or entry < before]


def _place(before: object) -> tuple[int, bytes]:
    """Time and beginning of the entry with this place."""
    found = _PLACE.fullmatch(before) if isinstance(before, str) else None
    if found is None or int(found[1]) > validate.INSTANT_MS_MAX:
        raise Malformed("before", before, "the place of an entry")
    at_ms, fence, outcome, id = found.groups()
    return int(at_ms), "\0".join((id, fence, outcome, "")).encode(errors="surrogateescape")


def past_job(at_ms: int, entry: bytes, serializers: Serializers) -> PastJob:
    """The entry as a value. Raises ScriptFault for what is none."""
    words = entry.split(b"\0", _FIELDS - 1)
    if len(words) < _FIELDS or len(numbers := [*map(whole, words[7].split())]) != _NUMBERS:
        raise ScriptFault(f"history: {entry!r:.200} is no entry")
    id, fence, outcome, name, key, unique, worker, error, serializer = (
        words[at].decode(errors="backslashreplace") for at in (0, 1, 2, 3, 4, 5, 6, 8, 9)
    )
    enqueued_ms, due_ms, started_ms, claims, failures, crashes, size = numbers
    return PastJob(
        *(f"{at_ms}:{fence}:{outcome}:{id}", id, outcome, name, key, unique, worker),
        *(enqueued_ms, due_ms, started_ms, at_ms, claims, failures, crashes, size, error, serializer),
        words[10] if serializer else None,
        serializers,
    )


def rule_of(parts: Iterable[HistoryPart]) -> HistoryRule | None:
    """The setting of the history, by what each shard has answered; None where there is none."""
    rules = [rule for part in parts if (rule := HistoryRule.read(part.setting)) is not None]
    if not rules:
        return None
    return HistoryRule(
        sum(rule.keep for rule in rules), rules[0].age_ms, rules[0].payload_bytes, rules[0].names
    )
