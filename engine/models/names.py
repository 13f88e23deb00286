"""What the names and ids of a queue may be: each model has one rule, and whatever takes a name from a caller
asks that rule.

Lanes has a narrow one, because its names stand in braces, in envelopes of bytes, and between spaces. The
programs of the older formats check nothing, so their names and ids are any texts; what would be another key
on the wire is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine import validate
from engine.errors import Malformed
from engine.options import NO_CHECKS

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Names:
    """The rule of a model: each function returns the name that it is given, or raises Malformed.

    `job_id` is for the id of a new job, `known_id` for that of one that is there. `key` is the key of a
    limit; its first argument is the field that an error names. `options` checks the options of jobs that hold
    names and ids, where that is not what their table says.
    """

    queue: Callable[[object], str]
    prefix: Callable[[object], str]
    job_name: Callable[[object], str]
    job_id: Callable[[object], str]
    known_id: Callable[[object], str]
    schedule: Callable[[object], str]
    key: Callable[[str, object], str]
    options: Mapping[str, Callable[[str, object], Any]]


def _own_id(value: object) -> str:
    id = validate.any_text("id", value)
    if id.startswith(validate.OF_SCHEDULES):
        raise Malformed("id", id, f"without the prefix {validate.OF_SCHEDULES}, which belongs to schedules")
    return id


#: What stands behind the root in Bull's own keys, and behind an id in the key of its lock: no end of an id.
_BULL_KEYS = frozenset(
    {"id", "wait", "paused", "meta-paused", "active", "delayed", "completed", "failed", "jobs", "lock"}
)
#: What the engine's own keys begin with, behind the root of the format.
_OWN = "ironclaim"
_NUMBER = re.compile(r"[0-9]+")


def _bull_queue(value: object) -> str:
    name = validate.any_text("queue", value)
    if _OWN in name.split(":"):
        raise Malformed(
            "queue", name, f"without a part {_OWN} between its colons, where the engine has keys of its own"
        )
    return name


def _bull_id(value: object) -> str:
    """Jobs lie directly below the name of their queue: `a` has the job `b:7` where `a:b` has the job 7."""
    id = _own_id(value)
    if _NUMBER.fullmatch(id):
        raise Malformed("id", value, "no number: Bull gives the numbers")
    end = id.rpartition(":")[2]
    if end in _BULL_KEYS or id.startswith(_OWN):
        raise Malformed("id", value, "another one than the name of a key of Bull's")
    if _NUMBER.fullmatch(end) or _OWN in id.split(":"):
        raise Malformed(
            "id", value, "another one: what stands behind its colon makes it a key of another queue"
        )
    return id


LANES = Names(
    queue=validate.queue_name,
    prefix=validate.prefix,
    job_name=validate.job_name,
    job_id=validate.job_id,
    known_id=validate.known_id,
    schedule=validate.schedule_name,
    key=validate.limit_key,
    options=NO_CHECKS,
)
#: Of a format whose programs check nothing: any text but the empty one.
ANY_TEXT = Names(
    queue=partial(validate.any_text, "queue"),
    prefix=partial(validate.any_text, "prefix"),
    job_name=partial(validate.any_text, "name"),
    job_id=_own_id,
    known_id=partial(validate.any_text, "id"),
    schedule=partial(validate.any_text, "name"),
    key=validate.any_text,
    options=MappingProxyType(
        {
            "needs": validate.any_parents,
            "reroute_on": validate.any_reroutes,
            "key": validate.any_text,
            "dedup": validate.any_text,
        }
    ),
)
BULL = replace(ANY_TEXT, queue=_bull_queue, job_id=_bull_id)
