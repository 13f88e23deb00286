"""The base of the models, which make calls of operations; slots of scripts, filled by name; ids of jobs."""

from __future__ import annotations

import binascii
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Self, cast

from engine import validate
from engine.errors import Malformed, ScriptFault, UnsupportedFeature
from engine.models.lanes_keys import LanesKeys
from engine.ops import schedules
from engine.ops.admin import Alter, NoteQueue, SetRetention
from engine.ops.base import Call, Operation
from engine.ops.claims import Extend, Failure, LeasedJob
from engine.ops.jobs import Enqueue, Lease, Options
from engine.ops.looks import AwaitEnds, Count, Inspect, ReadEvents, ReadProgress
from engine.ops.schedules import PutSchedule
from engine.ops.workers import Beat, ReportRunTimes
from engine.options import NO_CHECKS, PLAIN
from engine.parameters import TypedJob
from engine.redis.scripts import Script
from engine.validate import OF_SCHEDULES


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect of a wire format that the engine cannot prevent: its name, the checks that may show it (`J4`),
    and a description."""

    name: str
    checks: tuple[str, ...]
    text: str


# -- What the names and ids of a queue may be: each model has one rule, and whatever takes a name from a
# caller asks that rule.
#
# Lanes has a narrow one, because its names stand in braces, in envelopes of bytes, and between spaces. The
# programs of the older formats check nothing. So their names and ids are any texts. What would be another
# key on the wire is refused.


#: The class of a pause of all names.
WHOLE_QUEUE = "*"


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

    def class_name(self, name: object) -> str:
        """The class of jobs that a pause is of: a name, also as a task; None is the whole queue. Raises
        Malformed."""
        if name is None:
            return WHOLE_QUEUE
        name = named(name)
        if name == WHOLE_QUEUE:
            bound = f"another one: {WHOLE_QUEUE} stands for the whole queue, which is None here"
            raise Malformed("name", name, bound)
        return self.job_name(name)


def named(name: object) -> object:
    """The name of a task; anything else as it is."""
    return cast("TypedJob[Any]", name).name if issubclass(type(name), TypedJob) else name


def own_id(value: object) -> str:
    """An id that a caller gives: any text, but those of the jobs of schedules. Raises Malformed."""
    id = validate.any_text("id", value)
    if id.startswith(validate.OF_SCHEDULES):
        raise Malformed("id", id, f"without the prefix {validate.OF_SCHEDULES}, which belongs to schedules")
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
    job_id=own_id,
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


# -- Calls of scripts whose slots are filled by name, from what an operation declares.
#
# A slot of KEYS is a key of the queue or channel: the attribute of its keys with the slot's name, or, where
# that is a method, the key of one field of the operation. A slot of ARGV is a constant, or a field of the
# operation. Where the field has another name than the slot, `Declaration.slots` names it.

#: Slots of KEYS whose attribute has another name.
_ATTRIBUTES = {"record": "claim", "worker_settings": "settings"}
#: Slots of KEYS whose key is made of a field with another name, unless the operation itself names the field.
_FIELDS = {
    **dict.fromkeys(("run", "result", "waits"), "job"),
    **dict.fromkeys(("swept", "worker", "told", "record"), "incarnation"),
    "wait": "waiter",
    "op": "op_id",
    "news": "version",
    "lock": "name",
    "cursor": "subscriber",
}

#: Where the value of a slot comes from.
Source = Callable[[Operation], Any]


class _Filling(NamedTuple):
    """How one kind of operation fills the slots of a script: the constant values, in the order of the header,
    and for the other slots their positions, names and sources. `has_groups`: its header declares groups."""

    script: Script
    keys: Sequence[Any]
    key_sources: Sequence[tuple[int, str, Source]]
    arguments: Sequence[Any]
    argument_sources: Sequence[tuple[int, str, Source]]
    has_groups: bool


class FilledSlots:
    """Calls of the scripts of one queue or channel. `constants`: arguments that are the same in every call
    that has them."""

    def __init__(self, keys: object, scripts: Mapping[str, Script], constants: Mapping[str, object]) -> None:
        self.scripts = scripts
        #: The time that a test sets, on queues made for tests.
        self.now_ms: int | None = None
        self._all_keys = keys
        self._constants = constants
        self._fillings: dict[tuple[str, type[Any]], _Filling] = {}

    def parse(self, operation: Any, raw: Any) -> Any:
        """The raw reply of an operation as a value. Raises ScriptFault for one outside its contract."""
        try:
            return self.read_reply(operation, raw)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ScriptFault(
                f"{type(operation).__name__}: reply outside the contract ({error}): {raw!r:.200}"
            ) from error

    def read_reply(self, operation: Any, raw: Any) -> Any:
        """Like `parse`, but a reply outside the contract raises any error."""
        raise NotImplementedError

    def bound(
        self,
        operation: Operation,
        script: str = "",
        key_groups: Sequence[Sequence[str | bytes]] = (),
        argument_groups: Sequence[Sequence[object]] = (),
        **given: Any,
    ) -> Call[Any]:
        """The call of the operation's script, or of `script`. `given`: the values of slots that have no
        field."""
        name = script or operation.script
        kind: type[Any] = type(operation)
        filling = self._fillings.get((name, kind))
        if filling is None:
            filling = self._fillings[name, kind] = self._find(name, kind, given)
        if key_groups or argument_groups or filling.has_groups:
            filling.script.check_groups(key_groups, argument_groups)
        keys = _filled(filling.keys, filling.key_sources, operation, given, key_groups)
        arguments = _filled(filling.arguments, filling.argument_sources, operation, given, argument_groups)
        return Call(
            filling.script,
            keys,
            arguments,
            partial(self.parse, operation),
            operation,
            patient=operation.patient,
        )

    def _find(self, name: str, kind: type[Any], given: Mapping[str, object]) -> _Filling:
        script = self.scripts.get(name)
        if script is None:
            raise ScriptFault(f"the folder of scripts has no {name}.lua")
        unknown = given.keys() - {*script.keys, *script.arguments}
        if unknown:
            raise ScriptFault(f"script {name}: its header has no slot {', '.join(sorted(unknown))}")
        constants: dict[str, Any] = dict(self._constants)
        sources: dict[str, Source] = {}
        try:
            for slot in script.keys:
                if slot in given:
                    continue
                key: Any = getattr(self._all_keys, _ATTRIBUTES.get(slot, slot))
                if callable(key):
                    sources[slot] = _key_source(
                        key, _field_source(kind, kind.slots.get(slot) or _FIELDS.get(slot, slot))
                    )
                else:
                    constants[slot] = key
            for slot in script.arguments:
                if slot == "now_ms":
                    sources[slot] = lambda operation: "" if self.now_ms is None else self.now_ms
                elif slot not in given and slot not in constants:
                    sources[slot] = _field_source(kind, kind.slots.get(slot, slot))
        except AttributeError as error:
            raise ScriptFault(f"script {name}: nothing fills a slot of its header: {error}") from None

        def split_slots(slots: Sequence[str]) -> tuple[Sequence[Any], Sequence[tuple[int, str, Source]]]:
            dynamic = [
                (at, slot, sources.get(slot, _missing))
                for at, slot in enumerate(slots)
                if slot not in constants or slot in given
            ]
            return [constants.get(slot) for slot in slots], dynamic

        has_groups = bool(script.key_groups or script.argument_groups)
        return _Filling(script, *split_slots(script.keys), *split_slots(script.arguments), has_groups)


def _filled(
    constants: Sequence[Any],
    sources: Sequence[tuple[int, str, Source]],
    operation: Operation,
    given: Mapping[str, Any],
    groups: Sequence[Sequence[Any]],
) -> tuple[Any, ...]:
    values = list(constants)
    for at, slot, source in sources:
        values[at] = given[slot] if slot in given else source(operation)
    for group in groups:
        values += group
    return tuple(values)


def _missing(operation: Operation) -> object:
    raise ScriptFault(
        f"{type(operation).__name__}: a slot of its script is given in other calls and not in this one"
    )


def _key_source(key_of: Callable[[Any], object], value: Source) -> Source:
    return lambda operation: key_of(value(operation))


def _field_source(kind: type[Any], path: str) -> Source:
    """A source that reads a field as a script argument: None as '', true as 1. Raises AttributeError if the
    kind lacks it."""
    first, *further = path.split(".")
    getattr(kind, first)

    def value(operation: Operation) -> object:
        found = getattr(operation, first)
        for step in further:
            found = None if found is None else getattr(found, step)
        return "" if found is None else int(found) if isinstance(found, bool) else found

    return value


# -- Ids for jobs without one: 72 random bits as 12 characters.
#
# So many bits that no two of the jobs that a queue knows at a time have one id. With a million of them, the
# next one meets another with a chance of 1 to 5 * 10^15. So few characters because a waiting job stores its
# id twice.

# The first character is a letter or a digit, because commands take an argument with a dash in front for an
# option. That costs less than one of the bits.

_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_BYTES, _CHARS = 9, 12
#: What the first byte of an id becomes: those that would begin with `-` or `_` begin with a letter.
_FIRST = bytes(byte & 0x7F if byte >= 0xF8 else byte for byte in range(256))


def random_id() -> str:
    """Return one id."""
    return _drawn(1)


def random_ids() -> Iterator[str]:
    """Yield ids for a bulk; randomness is read for 64 ids at a time."""
    while True:
        text = _drawn(64)
        for at in range(0, len(text), _CHARS):
            yield text[at : at + _CHARS]


def _drawn(count: int) -> str:
    """The characters of some ids, one behind the other."""
    drawn = bytearray(os.urandom(count * _BYTES))
    drawn[::_BYTES] = drawn[::_BYTES].translate(_FIRST)
    return binascii.b2a_base64(drawn, newline=False).translate(_URL_SAFE).decode()


# -- The base of the models of queues: calls of the operations that follow, or nearly follow, from their
# declarations.

#: Most names of a queue with run times of their own; the times of all further names are added under `*`.
RUN_TIMES_NAMES_MAX = 1_000


class Model(FilledSlots):
    """The mapping of one queue to one data model in Redis, as queues and workers use it."""

    #: lanes, bridge, bananas, bull or mosquito.
    name: str
    #: What the names and ids of its queues and jobs may be.
    names: Names = ANY_TEXT
    #: The defects of the wire format that the engine cannot prevent.
    FINDINGS: tuple[Finding, ...] = ()
    #: The options of a job without explicit ones: the defaults of the wire format.
    defaults: Options = PLAIN
    #: Whether each claim checks the routing of each job, so that a class is just a name.
    routes_at_claim = False
    #: Whether one call may carry the jobs of several enqueues, each with a nonce of its own. The scripts of
    #: foreign formats identify a call by one nonce.
    merges_enqueues = False
    #: How often a wait for the end of a job polls, in ms: the longest delay until an end is seen.
    result_poll_ms = 5_000
    #: Whether an id of `new_id` is the identity of its enqueue, without a nonce (rule 3).
    generates_ids = False

    def __init__(
        self, keys: LanesKeys, scripts: Mapping[str, Script], constants: Mapping[str, object]
    ) -> None:
        super().__init__(keys, scripts, constants)
        self.keys = keys

    def sibling(self, queue: str) -> Self:
        """The same model of another queue."""
        raise NotImplementedError

    def new_id(self) -> str:
        """A new id for a job without one; '' if the server assigns it."""
        return random_id()

    def new_ids(self) -> Iterator[str]:
        """Like `new_id`, for many jobs."""
        while True:
            yield self.new_id()

    def check_id(self, value: object) -> str:
        """Return a caller's id if it is valid. Raises Malformed."""
        return self.names.job_id(value)

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature, or Malformed, for a job that the wire format cannot hold."""

    def refuse(self, operation: Operation) -> None:
        """Raise UnsupportedFeature for an operation that the model lacks."""

    def schedule_id(self, schedule: str, moment: str) -> str:
        """The id of the job that a schedule makes: `moment` is its tick, or `now-...` for `run_now`."""
        return f"{OF_SCHEDULES}{schedule}:{moment}"

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job as the model stores it; `counters` are claims, failures, crashes. Raises ScriptFault."""
        raise NotImplementedError

    def read_reply(self, operation: Operation, raw: Any) -> Any:
        """Parse the reply as the operation declares it."""
        return operation.parse(raw, self._decode_or_fail)

    def _decode_or_fail(
        self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]
    ) -> LeasedJob | Failure:
        """A claimed job, or a Failure that says why it cannot be read, so that one bad job does not fail the
        whole batch."""
        try:
            return self.decode(raw, lease, deadline_ms, counters)
        except ScriptFault as fault:
            return Failure(lease, str(fault))

    def control(self, worker: str) -> tuple[str, ...]:
        """The pub/sub channels on which scripts tell a worker of this name what it would else learn from its
        next calls (rule 26); none where the format's scripts publish nothing."""
        return ()

    @property
    def listed(self) -> str:
        """The name under which the queue is listed among those of a server."""
        return self.keys.queue

    def template(self, job: Enqueue) -> bytes:
        """The job that each tick of a schedule enqueues, encoded as the schedule stores it."""
        raise NotImplementedError

    def read_template(self, raw: bytes) -> LeasedJob:
        """Decode the bytes that `template` returned. Raises ScriptFault."""
        raise NotImplementedError

    def job_keys(self, jobs: Iterable[str]) -> list[str]:
        """The keys that scripts about leased jobs get for each job."""
        raise NotImplementedError

    def alter(self, operation: Alter) -> Call[Any]:
        """The call of an admin action on jobs."""
        raise NotImplementedError

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks."""
        keys = self.keys
        match operation:
            case Extend(leases=leases):
                return self.about_leases(operation, leases, [token(lease) for lease in leases])
            case Beat():
                return self.bound(operation, argument_groups=(operation.others,))
            case ReportRunTimes(items=items):
                words = [
                    word
                    for item in items
                    for word in (*item[:4], " ".join(f"{bucket} {runs}" for bucket, runs in item.buckets))
                ]
                names = [keys.took_by(item.name) for item in items]
                others = keys.took_by("*")
                return self.bound(
                    operation,
                    key_groups=(names,),
                    argument_groups=(words,),
                    others=others,
                    names_max=RUN_TIMES_NAMES_MAX,
                )
            case SetRetention(bounds=bounds):
                return self.bound(operation, argument_groups=([word for bound in bounds for word in bound],))
            case PutSchedule():
                timing, policy = schedules.written(operation.timing), schedules.written(operation.policy)
                job, most = self.template(operation.job), schedules.SCHEDULES_MAX
                return self.bound(operation, timing=timing, policy=policy, job=job, most=most)
            case Alter():
                return self.alter(operation)
            case Inspect(jobs=jobs):
                return self.bound(
                    operation,
                    key_groups=(raw_texts(self.job_keys(jobs)),),
                    argument_groups=(raw_texts(jobs),),
                )
            case Count(classes=classes):
                return self.bound(operation, argument_groups=(classes,))
            case ReadProgress():
                key = keys.run(operation.job)
                return Call(
                    None, (key,), ("HGET", key, "progress"), partial(self.parse, operation), operation
                )
            case AwaitEnds():
                block_ms = min(operation.block_ms, self.result_poll_ms)
                key = keys.wait(operation.waiter)
                words = ("XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", key, operation.after)
                return Call(None, (key,), words, partial(self.parse, operation), operation, block_ms)
            case ReadEvents():
                return self._read_events(operation)
            case NoteQueue():
                words = ("ZADD", keys.queues, "GT", operation.used_ms, self.listed)
                return Call(
                    None,
                    (keys.queues,),
                    words,
                    partial(self.parse, operation),
                    operation,
                    patient=operation.patient,
                )
            case _ if operation.script in self.scripts:
                return self.bound(operation)
            case _:
                raise UnsupportedFeature(f"{self.name} has no {type(operation).__name__}")

    def about_leases(
        self, operation: Operation, leases: Iterable[Lease], items: Iterable[Iterable[object]]
    ) -> Call[Any]:
        """The call of an operation on leases: `items` are the arguments for each."""
        words = [word for item in items for word in item]
        return self.bound(
            operation, key_groups=(self.job_keys(lease.job for lease in leases),), argument_groups=(words,)
        )

    def _read_events(self, operation: ReadEvents) -> Call[Any]:
        """A plain command, without a script, because reading events changes nothing."""
        if operation.after == "$":
            words: tuple[object, ...] = ("XREVRANGE", self.keys.events, "+", "-", "COUNT", 1)
        else:
            block = ("BLOCK", operation.block_ms) if operation.block_ms else ()
            words = ("XREAD", "COUNT", operation.limit, *block, "STREAMS", self.keys.events, operation.after)
        return Call(
            None, (self.keys.events,), words, partial(self.parse, operation), operation, operation.block_ms
        )


def token(lease: Lease) -> tuple[object, ...]:
    """The arguments of a script for one lease: id, fence, nonce."""
    return (lease.job, lease.fence, lease.nonce)


def raw_texts(texts: Iterable[str]) -> list[bytes]:
    """Keys and ids as bytes: a list may have an id that is no text."""
    return [text.encode(errors="surrogateescape") for text in texts]
