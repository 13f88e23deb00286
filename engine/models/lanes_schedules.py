"""Schedules as the scripts store them (rule 24)."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any, TypeVar, cast

from engine.models import envelope
from engine.ops.jobs import Enqueue
from engine.ops.schedules import TickPolicy, Timing

T = TypeVar("T", Timing, TickPolicy)

#: Most schedules of one queue.
SCHEDULES_MAX = 10_000


def sealed(job: Enqueue) -> bytes:
    """The envelope of a schedule's jobs: a tick fills in sequence and time, as an enqueue does."""
    head, tail = envelope.encode(job)
    return head + bytes(envelope.NUMBERS_BYTES) + tail


def written(value: Timing | TickPolicy) -> str:
    """The fields that differ from their defaults, as JSON."""
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    kept = {field.name: given[field.name] for field in fields(value) if given[field.name] != field.default}
    return json.dumps(kept, separators=(",", ":"), sort_keys=True)


def read(kind: type[T], text: str) -> T:
    """Parse the JSON that `written` returned. Raises ValueError for any other text."""
    try:
        given: Any = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"no {kind.__name__}: {text:.100} ({error})") from error
    known = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    if not isinstance(given, dict):
        raise ValueError(f"no {kind.__name__}: {text:.100}")
    values = cast("dict[str, Any]", given)
    for name, value in values.items():
        if name not in known or type(value) is not type(known[name]):
            raise ValueError(f"no {kind.__name__}: {name}={value!r:.100}")
    return kind(**values)
