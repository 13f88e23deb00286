"""Mosquito keyspaces. A keyspace that Crystal programs use needs `Mosquito(layout="live")`: the default, "document", has sorted
sets where Crystal's runners have lists, and each refuses the other's keys: those of its own queue and, while that one is empty,
those of other queues. Where the keyspace has no jobs, the locks of coordinators show that Crystal programs use it.

`document` follows the design document: waiting, pending, scheduled and dead are sorted sets. Waiting is scored by the arrival
(within one ms by fractions, so the order of arrival holds), pending by the claim, scheduled by the due time, dead by the
death, all in ms. `live` is the format of v2.0.0 and later versions: three lists, and scheduled as a sorted set. All else is
in both layouts as the original programs write it: the hash is `job_run:<id>` and, unlike in the document, has no field `id`.

Choices where the originals differ or leave something open:

- A job's name is its type, `ok_job` or `held_out::spaced_job`. Its payload is an object of texts, numbers and booleans; handlers
  read texts (see `mosquito_fields`), and other payloads are bytes in one field.
- A job without retry options has the original's: five runs, waits of 2 s times the square of the failures. Options for which
  the hash has no field are in an additional field, which the original ignores and keeps.
- `dedup="params"` with `dedup_ms` is the original's unique job, `dedup="params:user_id"` that of some parameters; any other text
  is a key of its own. As in the original, it holds until its time is over, whatever becomes of the job.
- A rate limit is counted in the original's hash, by the claim, in one step; its windows begin with the first run.
- Ids are `<ms>:<nine digits>`, counted and checked before they are used: the original's three random digits collide.
- Queues that hold only delayed jobs are listed as well. An id without a hash is removed from its structure, and is counted.
- `success_ttl_s` is 1 as in v2; HEAD has 60. `dead_ttl_s` is 86,400. Entries of the dead whose hash has expired are removed.
- The engine's workers are overseers in the registry from their first claim on, and active jobs hold their ids, so that HEAD does
  not take the jobs for orphans. A job whose hash names another overseer is that one's: no sweep of the engine takes it back.
- With `coordinate=True` the engine's leader holds the coordinator's lock, of both generations, until its worker ends. Crystal's
  own coordinators then promote no jobs, a step in which they lose and duplicate jobs; but they do not make their periodic jobs
  either.

`FINDINGS` lists the defects of the format that the engine cannot prevent. No cluster: the keys of one queue are in several
slots.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from engine.errors import UnsupportedFeature
from engine.models import mosquito_fields
from engine.models.fields import pack
from engine.models.foreign import Foreign
from engine.models.model import Finding
from engine.models.mosquito_keys import MosquitoKeys
from engine.ops.admin import ReadMetadata, SetLimit, SetMetadata
from engine.ops.base import Operation
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Enqueue, Lease, Options
from engine.wire.call import Call

#: Those between the parts of a class, and all others.
_COLONS = re.compile(r"(?<=\w)::(?=\w)|:")

FINDINGS = (
    Finding(
        "v2 leaves jobs in pending",
        ("J4", "J13"),
        "A v2 runner that dies leaves its jobs in `pending`, without an id of its own: they come back only with "
        "adopt_after_ms, which must be longer than any of its jobs takes, or they run twice.",
    ),
    Finding(
        "the original's ids collide",
        ("J1", "J4"),
        "A Crystal producer draws one of 1,000 ids for each ms, and does not look whether it is taken. The second of two jobs "
        "with one id overwrites the first one's hash: only one of the two runs, in Crystal's runners twice, in the engine once. "
        "The engine counts and records the second entry as `aside`. Of 13,750 jobs that a producer enqueued in bursts, 40 were "
        "lost so. Ids of the engine end in nine digits, theirs in at most three: jobs that the engine enqueues are not lost so.",
    ),
    Finding(
        "the original moves jobs in two steps",
        ("J1", "J4"),
        "A Crystal coordinator removes a due id and pushes it later; a runner that reschedules a failed run, and an overseer "
        "that cleans up after a dead one, do the same. One that dies in between loses the job. Coordinators do not promote with "
        "coordinate=True, because the engine's leader does. Two of them add an id twice: the engine's claims lease it once, but "
        "a Crystal runner runs each entry, also while the engine has the other one.",
    ),
    Finding(
        "HEAD adopts what names no overseer",
        ("J13",),
        "An overseer of HEAD that cleans up gives its id to each job in `pending` that names none, and does not run it: one of "
        "v2, or one that the engine gave back and claimed again between two of its commands, whose end is then refused. Such a "
        "job stays in `pending` until that overseer has ended, and then runs once more.",
    ),
    Finding(
        "v2 does not pause",
        (),
        "Pauses of a queue are in the key that HEAD reads. v2 does not know it: its runners go on.",
    ),
    Finding(
        "the original does not fence",
        ("J2", "J3", "J6"),
        "A Crystal runner that was taken for dead ends its job all the same: its removal from `pending` makes the engine's "
        "lease stale, and the handler's result is refused.",
    ),
    Finding(
        "periodic jobs have two clocks",
        ("J15",),
        "A Crystal coordinator and a schedule of the engine that make the same periodic job each use their own clock: define "
        "it in one of them only.",
    ),
    Finding(
        "no type is on the wire",
        (),
        "Parameters are texts: a handler reads them as texts, also those that were numbers when they were enqueued.",
    ),
)


class MosquitoModel(Foreign):
    """The mapping for one queue."""

    name = "mosquito"
    OPTIONS = mosquito_fields.OPTIONS
    defaults = mosquito_fields.DEFAULTS
    FINDINGS = FINDINGS

    def __init__(
        self, queue: str, prefix: str, *, lua: Path | None = None, layout: str = "document", settings: str = "1 86400 0 0"
    ) -> None:
        super().__init__(queue, prefix, lua=lua, layout=layout, settings=settings)
        #: The foreign keys, for tools and tests.
        self.wire = MosquitoKeys(queue, prefix)

    @staticmethod
    def places(queue: str, prefix: str) -> tuple[str, str]:
        """All queues share one keyspace. In the engine's keys a colon of a name is escaped, but for those of a namespaced class:
        the queue `a:run` would else have its keys among those of the jobs of `a`."""
        name = _COLONS.sub(lambda found: found[0] if found[0] == "::" else "%3a", queue.replace("%", "%25"))
        return f"{prefix}:", f"{name}:"

    def new_id(self) -> str:
        """'': the server assigns the id."""
        return ""

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for an option, and Malformed for a payload, that the hash cannot hold."""
        super().check(id, name, payload, options)
        given = mosquito_fields.parameters(payload, options)
        mosquito_fields.unique_text(name, given, options.dedup)

    def refuse(self, operation: Operation) -> None:
        """Raise UnsupportedFeature for an operation that the model lacks. A key may have a rate limit, as in the original."""
        if not (isinstance(operation, SetLimit) and operation.target.startswith("k:")):
            super().refuse(operation)
        elif operation.limit is not None and operation.limit.concurrency:
            raise UnsupportedFeature(f"{self.name} has no bound of what runs at once for a key, but rates")

    def encode(self, job: Enqueue) -> bytes:
        """Type, unique text and its time, then name and text of each field."""
        given = mosquito_fields.parameters(job.payload, job.options)
        unique = mosquito_fields.unique_text(job.name, given, job.options.dedup)
        extra = mosquito_fields.extra(job.options)  # noqa: S610  not a query
        if extra:
            given = [*given, ("ironclaim", extra.encode())]
        flat = [word for pair in given for word in pair]
        return pack(job.name, unique, job.options.dedup_ms, *flat)

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks."""
        match operation:
            case ReadMetadata():
                key = self.wire.metadata(operation.name)
                words = ("HGETALL", key)
                return Call(None, (key,), words, partial(self.parse, operation), operation)
            case SetMetadata():
                items: list[object] = []
                for field, value in operation.fields:
                    items += ("remove" if value is None else "set", field, value or "")
                for field, number in operation.added:
                    items += ("add", field, number)
                return self.bound(operation, argument_groups=(items,), metadata=self.wire.metadata(operation.name))
            case _:
                return super().call(operation)

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job from the flat list of its hash."""
        return mosquito_fields.decode(raw, lease, deadline_ms, counters)
