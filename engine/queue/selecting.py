"""Which jobs of a state are meant: those of a name, with a key, with an error, of an age; and which page of them. Without I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

from engine import validate
from engine.errors import Malformed
from engine.models.names import LANES, Names
from engine.queue.job_info import JobInfo

#: Jobs that are looked at for one answer, and of one call.
LOOKED_MAX = 10_000
PIECE = 500
#: Places of a state that one page is made of: their jobs are read in one call.
PLACES_MAX = 250
_ERROR_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Selection:
    """Jobs that meet all that is given. `error`: whole words of the last error's last line, such as `ValueError`. Ages are from
    the end of a job that has ended or died, else from its enqueue."""

    name: str | None = None
    key: str | None = None
    error: str | None = None
    older_than_ms: int = 0
    newer_than_ms: int | None = None

    @property
    def everything(self) -> bool:
        """Whether every job is meant."""
        return self == Selection()

    def matches(self, job: JobInfo, now_ms: int) -> bool:
        """Whether a job is meant."""
        if self.name is not None and job.name != self.name:
            return False
        if self.key is not None and job.key != self.key:
            return False
        if self.error is not None:
            last_line = (job.last_error.strip().splitlines() or [""])[-1]
            if not re.search(rf"(?<!\w){re.escape(self.error)}(?!\w)", last_line):
                return False
        age_ms = now_ms - (job.ended_ms or job.enqueued_ms)
        return age_ms >= self.older_than_ms and (self.newer_than_ms is None or age_ms < self.newer_than_ms)


class ListOptions(TypedDict, total=False):
    """Which jobs of a state a list has. `offset` (0) and `limit` (100) are its page, in the order of time (`newest_first`: from
    its end); those that wait come lane by lane, each lane in its order. Only those of a `name`, with a `key`, whose last error
    has `error` as whole words (`ValueError`), or that were enqueued, died or ended so long ago."""

    offset: int
    limit: int
    newest_first: bool
    name: str | None
    key: str | None
    error: str | None
    older_than_ms: int
    newer_than_ms: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the jobs that are meant."""

    wanted: Selection
    offset: int
    limit: int
    newest_first: bool


def listing(
    limit_max: int,
    *,
    offset: object = 0,
    limit: object = 100,
    newest_first: object = False,
    name: object = None,
    key: object = None,
    error: object = None,
    older_than_ms: object = 0,
    newer_than_ms: object = None,
    names: Names = LANES,
) -> Listing:
    """The page that ListOptions ask for, of at most `limit_max` jobs. Raises Malformed."""
    wanted = selection(name, key, error, older_than_ms, newer_than_ms, names)
    backwards = validate.truth("newest_first", newest_first)
    first = validate.integer("offset", offset, 0, 2**48)
    return Listing(wanted, first, validate.integer("limit", limit, 1, limit_max), backwards)


def selection(
    name: object, key: object, error: object, older_than_ms: object, newer_than_ms: object, names: Names = LANES
) -> Selection:
    """Which jobs are meant, checked; `names` is the rule of the queue's model. Raises Malformed."""
    if error is not None and not (isinstance(error, str) and 1 <= len(error.strip()) <= _ERROR_CHARACTERS_MAX):
        raise Malformed("error", error, f"a text of 1 to {_ERROR_CHARACTERS_MAX} characters, such as ValueError")
    most = validate.DURATION_MS_MAX
    return Selection(
        None if name is None else names.job_name(name),
        None if key is None else names.key("key", key),
        None if error is None else error.strip(),
        validate.integer("older_than_ms", older_than_ms, 0, most),
        None if newer_than_ms is None else validate.integer("newer_than_ms", newer_than_ms, 1, most),
    )
