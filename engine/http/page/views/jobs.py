"""The jobs of a state, filtered by name, key, error and text, one look at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args
from urllib.parse import urlencode

from engine import validate
from engine.errors import Malformed, shown
from engine.http.page.rendering import last_line
from engine.models.names import ANY_TEXT
from engine.ops.admin import AdminAction, Alter
from engine.ops.looks import LISTED, Counts
from engine.queue import admin, looks
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.looks import PLACES_MAX, JobInfo, JobPage, Selection
from engine.serializers import TEXTS

#: As in `selecting.LOOKED_MAX`: what lies deeper is found by its id or by a filter of another state.
OFFSET_MAX = looks.LOOKED_MAX
_TEXT_CHARACTERS_MAX = 200
#: How many characters of a payload a row shows.
_PAYLOAD_SHOWN = 160


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs are meant, as the address of a view says it. An empty field means all."""

    state: str = "waiting"
    name: str = ""
    key: str = ""
    error: str = ""
    text: str = ""
    newest: bool = False
    cursor: int = 0

    @property
    def selection(self) -> Selection:
        """What the engine calls the same, without the text."""
        return looks.selection(self.name or None, self.key or None, self.error or None, 0, None, ANY_TEXT)

    @property
    def narrow(self) -> bool:
        """Whether some jobs of the state are not meant."""
        return bool(self.name or self.key or self.error or self.text)

    def address(self, **changed: object) -> str:
        """The query of an address with some fields changed."""
        fields = {
            "state": self.state,
            "name": self.name,
            "key": self.key,
            "error": self.error,
            "text": self.text,
        }
        fields |= {"newest": "1" if self.newest else "", "cursor": self.cursor or ""}
        shown = {name: value for name, value in (fields | changed).items() if value not in ("", None)}
        return urlencode(shown, errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a table. `at_ms` is the time that its state is about: due, lease end, death or end, else the
    enqueue."""

    id: str
    name: str
    key: str
    state: str
    priority: int
    at_ms: int
    attempts: str
    error: str
    payload: str | None


@dataclass(frozen=True, slots=True)
class JobList:
    """One look: of `seen` jobs from rank `first` on these match. `next` is the cursor of the next look."""

    rows: tuple[JobRow, ...]
    first: int
    seen: int
    next: int | None
    now_ms: int


def filter_of(query: Mapping[str, str]) -> Filter:
    """The filter of an address. Raises Malformed."""
    state = query.get("state", "waiting")
    admin.check_state(state, LISTED)
    cursor = query.get("cursor", "0")
    if not cursor.isascii() or not cursor.isdigit() or int(cursor[:9]) > OFFSET_MAX or len(cursor) > 9:
        raise Malformed("cursor", cursor, f"a number from 0 to {OFFSET_MAX}")
    text = query.get("text", "").strip()
    if len(text) > _TEXT_CHARACTERS_MAX:
        raise Malformed("text", text, f"a text of at most {_TEXT_CHARACTERS_MAX} characters")
    words = {field: query.get(field, "").strip() for field in ("name", "key", "error")}
    made = Filter(state, **words, text=text, newest=query.get("newest") == "1", cursor=int(cursor))
    # What cannot be meant is refused before any call.
    assert made.selection is not None
    return made


def matching(found: JobPage, wanted: Filter, *, payloads: bool) -> tuple[JobInfo, ...]:
    """The jobs that are meant. Payloads are looked into only where they may be seen."""
    selection, now_ms = wanted.selection, found.srv_us // 1000
    return tuple(
        job
        for job in found.jobs
        if selection.matches(job, now_ms)
        and (not wanted.text or has_text(job, wanted.text, payloads=payloads))
    )


def has_text(job: JobInfo, text: str, *, payloads: bool) -> bool:
    """Whether a text is part of what may be seen of a job; upper and lower case are the same."""
    places = [job.id, job.name, job.key, job.last_error, *(error.error for error in job.errors)]
    if payloads:
        places.append(job.payload_bytes.decode(errors="replace"))
    return any(text.casefold() in place.casefold() for place in places)


def job_list(found: JobPage, wanted: Filter, *, payloads: bool) -> JobList:
    """One look, filtered."""
    rows = tuple(job_row(job, payloads=payloads) for job in matching(found, wanted, payloads=payloads))
    following = found.next if found.next is not None and found.next <= OFFSET_MAX else None
    return JobList(rows, wanted.cursor, found.looked, following, found.srv_us // 1000)


def job_row(job: JobInfo, *, payloads: bool) -> JobRow:
    """A job as its row."""
    at_ms = (
        job.ended_ms or job.lease_end_ms or (job.due_ms if job.state == "delayed" else 0) or job.enqueued_ms
    )
    tried = job.failures + job.crashes
    attempts = f"{tried} of {job.options.attempts}" if job.name and (tried or job.claims) else ""
    error = job.unreadable or last_line(job.last_error)
    payload = payload_line(job)[:_PAYLOAD_SHOWN] if payloads else None
    return JobRow(job.id, job.name, job.key, job.state, job.priority, at_ms, attempts, error, payload)


def payload_line(job: JobInfo) -> str:
    """A payload in a line: its JSON as it is stored, and of any other serialiser what it reads."""
    if job.options.serializer in ("", TEXTS):
        return job.payload_bytes[: _PAYLOAD_SHOWN * 4].decode(errors="replace")
    return shown(job.payload)


def checked_limit(value: str) -> int:
    """How many jobs a bulk action may change at most. Raises Malformed."""
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        raise Malformed("limit", value, f"a number from 1 to {validate.DEAD_MAX}")
    return validate.integer("limit", int(value), 1, validate.DEAD_MAX)


# -- Dead jobs, grouped by name and error.

#: The class of an exception at the start of an error's last line: `ValueError`, `module.Error`.
_CLASS = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Jobs of one name that died of the same kind of error: how many of those looked at, when the last one
    died, its error and its id. `error` are words that a filter finds them by, '' where there are none."""

    name: str
    error: str
    count: int
    last_ms: int
    example: str
    job: str


@dataclass(frozen=True, slots=True)
class DeadJobs:
    """The groups among the `seen` jobs that died last; `more`: there are others."""

    groups: tuple[DeadGroup, ...]
    seen: int
    more: bool
    now_ms: int


def dead_jobs(found: JobPage) -> DeadJobs:
    """Group the dead jobs of one look, the largest group first."""
    groups: dict[tuple[str, str], DeadGroup] = {}
    for job in found.jobs:
        kind = error_class(job)
        known = groups.get((job.name, kind))
        if known is None or job.ended_ms > known.last_ms:
            example = job.unreadable or last_line(job.last_error)
            newest = DeadGroup(job.name, kind, 0, job.ended_ms, example, job.id)
        else:
            newest = known
        count = 1 + (known.count if known is not None else 0)
        groups[job.name, kind] = DeadGroup(job.name, kind, count, newest.last_ms, newest.example, newest.job)
    ordered = sorted(groups.values(), key=lambda group: (-group.count, -group.last_ms, group.name))
    return DeadJobs(tuple(ordered), found.looked, found.next is not None, found.srv_us // 1000)


def error_class(job: JobInfo) -> str:
    """The class of a job's last error, '' where its last line begins with none."""
    match = _CLASS.match(last_line(job.last_error))
    return match[0].rstrip(".") if match else ""


# -- One action on many jobs: how many it would change, counted one look at a time, and the action itself,
# in pieces.

#: Actions on many jobs, by the state that the jobs are in.
ACTIONS: Mapping[str, tuple[AdminAction, ...]] = {
    "dead": ("requeue", "discard"),
    "delayed": ("run_now", "cancel"),
    "waiting": ("cancel",),
    "blocked": ("cancel",),
}
#: Jobs that one request changes, and that it looks at for that.
CHANGED_MAX = 10_000
_LOOKED_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Count:
    """How many of the `seen` first jobs of a state are meant; `next` is the cursor of the next look, None at
    the end. `cut`: there are more jobs than are counted."""

    matched: int
    seen: int
    next: int | None
    cut: bool


def action_of(value: str, state: str) -> AdminAction:
    """An action on jobs in this state. Raises Malformed."""
    known = {str(action): action for action in get_args(AdminAction)}
    if value not in ACTIONS.get(state, ()):
        raise Malformed(
            "action",
            value,
            f"one of {', '.join(ACTIONS.get(state, ()))}" if state in ACTIONS else "left out here",
        )
    return known[value]


async def count(queue: AsyncQueue, wanted: Filter, before: Count, *, payloads: bool) -> Count:
    """Look at some more jobs. Two calls."""
    found = await queue.jobs.page(wanted.state, offset=before.next or 0, limit=PLACES_MAX)
    matched = before.matched + len(matching(found, wanted, payloads=payloads))
    cut = found.next is not None and found.next > OFFSET_MAX
    return Count(matched, before.seen + found.looked, None if cut else found.next, cut)


async def change(queue: AsyncQueue, action: AdminAction, wanted: Filter, most: int, *, payloads: bool) -> int:
    """Do something to the jobs that are meant, at most so many; how many it was done to. Each job is looked
    at once."""
    done = 0
    for shard in await queue.in_use():
        done += await _change(shard, action, wanted, most - done, payloads=payloads)
    return done


async def _change(
    queue: AsyncQueue, action: AdminAction, wanted: Filter, most: int, *, payloads: bool
) -> int:
    # What comes back into the state meanwhile, as a dead job that was requeued and died again, is not changed
    # twice.
    left = min(_LOOKED_MAX, _in_state(await queue.counts(one_call=True), wanted.state))
    done = offset = 0
    while left > 0 and done < most:
        found = await queue.jobs.page(wanted.state, offset=offset, limit=min(admin.PIECE, left))
        if not found.looked:
            break
        meant = matching(found, wanted, payloads=payloads)
        jobs = tuple(job.id for job in meant)[: most - done]
        items = (await queue.do(Alter(action, jobs, wanted.state))).items if jobs else ()
        changed = sum(item.done for item in items)
        done += changed
        left -= found.looked
        offset += found.looked - changed
    return done


def _in_state(counts: Counts, state: str) -> int:
    """How many jobs are in a state; of the waiting ones only some lanes are counted."""
    return {"dead": counts.dead, "delayed": counts.delayed, "blocked": counts.blocked}.get(state, _LOOKED_MAX)
