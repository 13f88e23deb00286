"""The producer without I/O: checks jobs, builds the calls, and interprets the replies."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Generic, TypeVar, Unpack, cast

from engine import validate
from engine.errors import (
    EngineError,
    Malformed,
    OutcomeUnknown,
    PartlyEnqueued,
    ScriptFault,
    ServerUnavailable,
    UnknownParent,
    UnsafeServer,
    UnsupportedFeature,
    nearest,
)
from engine.models.model import Model, random_id, random_ids
from engine.ops.base import CALL_BYTES_MAX, PIPELINE_CALLS, Operation
from engine.ops.jobs import Enqueue, Enqueued, EnqueuedMany, EnqueueMany, Options, Parent
from engine.options import OPTIONS, PLAIN, JobOptions, checked
from engine.parameters import JobName, TypedJob
from engine.redis.exchange import Sent
from engine.serializers import BUILT_IN, Serializers

# -- Steps: operations that take several calls, as generators without I/O, written once for both
# interfaces.
#
# `carry_out` of a queue runs them, and so does the simulator, which interrupts them anywhere.

T = TypeVar("T")

#: Steps that return T. They yield operations, each of which is answered with its reply, or several that leave
#: in one pipeline, which are answered with a Sent or an EngineError for each.
Steps = Generator[Operation | Sequence[Enqueue | EnqueueMany], Any, T]
#: Jobs of one `enqueue_many`: all of them are checked, and held in memory, before the first is sent.
JOBS_MAX = 100_000
#: One script call: it keeps the server's one thread for some milliseconds.
CALL_JOBS_MAX = 1_000
#: What an envelope adds to a payload, roughly.
_ENVELOPE_BYTES = 256
_FIELDS = ("name", "payload", "id", *OPTIONS)
#: What a job without options of its own is given.
NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


@dataclass(slots=True, init=False)
class NewJob:
    """A job to enqueue with `enqueue_many`: the arguments of `enqueue`, with the same bounds and defaults.

    Not frozen: making a frozen one takes as long as encoding its payload.
    """

    name: str
    payload: object
    id: str | None
    options: JobOptions

    def __init__(
        self, name: JobName, payload: object, *, id: str | None = None, **options: Unpack[JobOptions]
    ) -> None:
        if not isinstance(name, str) and isinstance(name, TypedJob):  # pyright: ignore[reportUnnecessaryIsInstance]
            merged: Any = {**name.options, **options}
            own_id = merged.pop("id", None)
            name, id, options = name.name, own_id if id is None else id, merged
        self.name = name
        self.payload = payload
        self.id = id
        self.options = options


R_co = TypeVar("R_co", covariant=True)


class TaskJob(NewJob, Generic[R_co]):
    """The job of one call of a task, as `task.new(...)` makes it. `queue.results` takes it in place of its
    id, and then knows the type of the result. After `enqueue_many` its `id` is that of the job that is there:
    another one where `unique` or `dedup` kept it out. Until then it is '' where the server draws the ids."""

    __slots__ = ("task",)

    # Nobody puts None into it: who makes a job of its own from this one has a NewJob.
    id: str  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, task: TypedJob[R_co], payload: object, *, id: str | None) -> None:
        super().__init__(task, payload, id=id)
        self.task = task


def meant(id: str | TaskJob[Any], task: TypedJob[Any] | None) -> tuple[str, TypedJob[Any] | None]:
    """The id and the task that a call about a result is for."""
    if issubclass(type(id), TaskJob):
        job = cast("TaskJob[Any]", id)
        return job.id, job.task
    return cast("str", id), task


def listed(jobs: object) -> list[object]:
    """The jobs of a bulk, of too many only so many that it shows. Raises Malformed."""
    each = validate.each("jobs", jobs, "an iterable of NewJob or of mappings with its fields")
    return [*islice(each, JOBS_MAX + 1)]


def note_ids(jobs: Sequence[object], came: Sequence[Enqueued]) -> None:
    """Give each TaskJob the id of the job that is there."""
    for job, enqueued in zip(jobs, came, strict=True):
        if issubclass(type(job), TaskJob):
            cast("TaskJob[Any]", job).id = enqueued.job


def draft(
    name: object,
    payload: object,
    payload_bytes_max: int,
    id: object = None,
    options: Mapping[str, object] = NO_OPTIONS,
    serializers: Serializers = BUILT_IN,
    model: Model | None = None,
) -> Enqueue:
    """The enqueue of a job, checked, for a queue of this model (None: for one that holds whatever a job may
    be). An id that was generated for it needs no nonce (rule 3). Raises Malformed and UnsupportedFeature."""
    if model is None:
        job = random_id() if id is None else validate.job_id(id)
        generated = id is None
    else:
        job = model.new_id() if id is None else model.check_id(id)
        generated = id is None and model.generates_ids
    job_name = validate.job_name(name) if model is None else model.names.job_name(name)
    made = PLAIN if model is None else model.defaults
    if options:
        made = checked(options) if model is None else checked(options, made, model.names.options)
        if made.calls_back:
            made = _with_callbacks(made, Parent.named(job, job_name), payload_bytes_max, serializers)
    return _written(
        job,
        job_name,
        payload,
        b"" if generated else os.urandom(8),
        made,
        payload_bytes_max,
        serializers,
        model,
    )


def _written(
    job: str,
    name: str,
    payload: object,
    nonce: bytes,
    options: Options,
    payload_bytes_max: int,
    serializers: Serializers,
    model: Model | None,
) -> Enqueue:
    """The enqueue of a job whose id, name and options were checked. Raises as `draft` does."""
    if serializers.plain and not options.serializer and not issubclass(type(payload), bytes | bytearray):
        data = validate.json_bytes("payload", payload, payload_bytes_max)
    else:
        data, options = serializers.write(payload, options, payload_bytes_max)
    if model is not None:
        model.check(job, name, data, options)
    return Enqueue(job, name, data, nonce, options)


def _with_callbacks(
    options: Options, parent: Parent, payload_bytes_max: int, serializers: Serializers
) -> Options:
    """The options of a job with its callbacks ready to be made. Raises Malformed that names the callback."""
    made: dict[str, Any] = {}
    for field in ("on_success", "on_failure"):
        new: Any = getattr(options, field)
        if new is None:
            continue
        try:
            drafted = draft(new.name, new.payload, payload_bytes_max, None, new.options, serializers)
        except Malformed as error:
            raise error.within(field) from error.__cause__
        made[field] = replace(drafted, job="", options=replace(drafted.options, needs=(parent,)))
    return replace(options, **made)


def drafts(
    jobs: object, payload_bytes_max: int, serializers: Serializers = BUILT_IN, model: Model | None = None
) -> list[Enqueue]:
    """Jobs, checked as `draft` does, with one nonce in common. Raises Malformed that names the first bad one
    by its index: `jobs[3].priority`."""
    found: list[Enqueue] = []
    nonce = os.urandom(8)
    known: set[str] = set()
    names: set[str] = set()
    ids, own_ids = random_ids() if model is None else model.new_ids(), 0
    for at, job in enumerate(
        validate.each("jobs", jobs, "an iterable of NewJob or of mappings with its fields")
    ):
        if at == JOBS_MAX:
            raise Malformed("jobs", f"more than {JOBS_MAX} jobs", f"at most {JOBS_MAX} jobs in one call")
        made = _draft_of(job, at, payload_bytes_max, names, ids, nonce, serializers, model)
        # The server gives ids to those that have none.
        if made.job:
            own_ids += 1
            known.add(made.job)
        if len(known) < own_ids:
            raise Malformed(f"jobs[{at}].id", made.job, "an id that no other job of the call has")
        found.append(made)
    return found


def enqueued(sent: Sent, name: str = "") -> Enqueued:
    """The result of an enqueue, of this name if it is known: its id tells it to the `needs` of other jobs.
    Raises UnknownParent, and OutcomeUnknown for a refusal when a copy may have been applied."""
    reply: object = sent.reply
    if not isinstance(reply, Enqueued):
        raise ScriptFault(f"Enqueue: a reply of type {type(reply).__name__}")
    if reply.result == "created" and name:
        # What most calls come to.
        srv_us, job, result, state, fence, holder = reply
        return Enqueued(srv_us, Parent.named(job, name), result, state, fence, holder)
    if (refusal := _refusal(reply, sent.definite)) is not None:
        raise refusal
    if reply.result == "moved":
        raise _moved_error(reply)
    item = _existing(reply)
    # Of a job that has the unique or dedup key nobody knows the name here.
    own = name and item.job == reply.job
    return item._replace(job=Parent.named(item.job, name)) if own else item


def _existing(item: Enqueued) -> Enqueued:
    """For callers: `job` is an id that exists. That of a job which another one keeps out is known to
    nobody."""
    return item._replace(job=item.holder) if item.result == "duplicate" else item


def enqueue_many(jobs: Sequence[Enqueue]) -> Steps[list[Enqueued]]:
    """Enqueue jobs that were checked; a result for each of them.

    After a call that failed no further pipeline goes out. Raises that failure when it is all there is, else
    PartlyEnqueued.
    """
    return concluded((yield from enqueue_each(jobs)))


def enqueue_each(jobs: Sequence[Enqueue], *, one_nonce: bool = False) -> Steps[list[Enqueued | EngineError]]:
    """As `enqueue_many`, but returns failures as they are, and jobs that have moved. `one_nonce`: of all
    calls, so that a job has it whichever call it is in; for jobs with ids."""
    operations = [_operation(part, 0 if one_nonce else number) for number, part in enumerate(_parts(jobs))]
    results: list[Enqueued | EngineError] = []
    for at in range(0, len(operations), PIPELINE_CALLS):
        pipeline = operations[at : at + PIPELINE_CALLS]
        outcomes: list[Sent | EngineError] = yield pipeline
        late = [
            number
            for number, outcome in enumerate(outcomes)
            if isinstance(outcome, Sent) and outcome.came_late
        ]
        if late:
            for number, outcome in zip(late, (yield [pipeline[number] for number in late]), strict=True):
                outcomes[number] = outcome
        for operation, outcome in zip(pipeline, outcomes, strict=True):
            results += _results(operation, outcome)
        if any(isinstance(result, EngineError) for result in results):
            break
    results += [ServerUnavailable("not sent, after another call had failed")] * (len(jobs) - len(results))
    return results


def _operation(part: Sequence[Enqueue], number: int) -> Enqueue | EnqueueMany:
    """The operation of one call, which is the `number`-th of its bulk. Each call has a nonce of its own: jobs
    without an id are known by that alone."""
    for job in part if number else ():
        if job.nonce:
            nonce = (int.from_bytes(job.nonce, "big") + number) % 2**64
            job.nonce = nonce.to_bytes(8, "big")  # pyright: ignore[reportAttributeAccessIssue]  nothing has left yet
    # One that needs others goes alone, as its parents are keys of its call, and so does one with callbacks.
    return part[0] if part[0].options.goes_alone else EnqueueMany(tuple(part))


def _draft_of(
    job: object,
    at: int,
    payload_bytes_max: int,
    names: set[str],
    ids: Iterator[str],
    nonce: bytes,
    serializers: Serializers,
    model: Model | None,
) -> Enqueue:
    """One job of a bulk. `names` are those that were checked before, `ids` new ones."""
    if issubclass(type(job), NewJob):
        new = cast("NewJob", job)
        name, payload, id, options = (
            cast("object", new.name),
            new.payload,
            _id_of(new),
            cast("Mapping[str, object]", new.options),
        )
    else:
        name, payload, id, options = _fields_of(job, at)
    try:
        # A name that was checked before need not be checked again.
        if not (type(name) is str and name in names):
            name = validate.job_name(name) if model is None else model.names.job_name(name)
            names.add(name)
        checked_id = next(ids) if id is None else validate.job_id(id) if model is None else model.check_id(id)
        generated = id is None and (model is None or model.generates_ids)
        made = checked(options) if model is None else checked(options, model.defaults, model.names.options)
        if made.calls_back:
            made = _with_callbacks(made, Parent.named(checked_id, name), payload_bytes_max, serializers)
        return _written(
            checked_id,
            name,
            payload,
            b"" if generated else nonce,
            made,
            payload_bytes_max,
            serializers,
            model,
        )
    except Malformed as error:
        raise error.within(f"jobs[{at}]") from error.__cause__
    except UnsupportedFeature as error:
        raise UnsupportedFeature(f"jobs[{at}]: {error}") from None


def _id_of(job: NewJob) -> str | None:
    return None if not job.id and issubclass(type(job), TaskJob) else job.id


def new_jobs(jobs: Iterable[object], prepare: Callable[[NewJob], NewJob]) -> list[NewJob]:
    """The jobs of a bulk, each as `prepare` (hooks before the enqueue) leaves it. Raises Malformed, and what
    a hook raises."""
    made: list[NewJob] = []
    for at, job in enumerate(
        validate.each("jobs", jobs, "an iterable of NewJob or of mappings with its fields")
    ):
        if issubclass(type(job), NewJob):
            name, payload, id, options = job.name, job.payload, _id_of(job), job.options
        else:
            name, payload, id, options = cast("Any", _fields_of(job, at))
        made.append(prepare(NewJob(name, payload, id=id, **options)))
    return made


def _fields_of(job: object, at: int) -> tuple[object, object, object, Mapping[str, object]]:
    """Name, payload, id and options of a job that is a mapping. Raises Malformed for anything else."""
    bound = "a NewJob, or a mapping with its fields: name, payload, and the options of enqueue"
    return validate.asked(f"jobs[{at}]", job, bound, _read_fields, job, at, bound)


def _read_fields(job: object, at: int, bound: str) -> tuple[object, object, object, Mapping[str, object]]:
    if not isinstance(job, Mapping):
        raise Malformed(f"jobs[{at}]", job, bound, private=True)
    options = dict(cast("Mapping[Any, object]", job))
    missing = [field for field in _FIELDS[:2] if field not in options]
    for field in options:
        if field not in _FIELDS:
            bound = (
                f"name, payload, id or an option of jobs{nearest(field, _FIELDS)}; "
                "engine.JobOptions lists them"
            )
            raise Malformed(f"jobs[{at}]", field, bound)
    if missing:
        raise Malformed(f"jobs[{at}]", cast("object", job), f"{bound}; it lacks {' and '.join(missing)}")
    return options.pop("name"), options.pop("payload"), options.pop("id", None), options


def _parts(jobs: Sequence[Enqueue]) -> Iterator[Sequence[Enqueue]]:
    """The jobs of each call, in order."""
    start = size = 0
    for at, job in enumerate(jobs):
        job_bytes = len(job.payload) + _ENVELOPE_BYTES
        full = at - start == CALL_JOBS_MAX or size + job_bytes > CALL_BYTES_MAX
        if at > start and (full or job.options.goes_alone or jobs[at - 1].options.goes_alone):
            yield jobs[start:at]
            start, size = at, 0
        size += job_bytes
    if jobs:
        yield jobs[start:]


def _refusal(item: Enqueued, definite: bool) -> EngineError | None:
    """The error for a refused call: a late one is reported only when it followed an unanswered send."""
    if item.result == "orphan":
        # An earlier copy that was applied would have been repeated, and one that was not can do nothing any
        # more.
        return UnknownParent(item.job, item.holder)
    if item.result != "refused" or definite:
        return None
    return OutcomeUnknown(f"enqueue of {item.job} was refused as late after an unanswered send")


def _results(
    operation: Enqueue | EnqueueMany, outcome: Sent | EngineError
) -> Sequence[Enqueued | EngineError]:
    """A result for each job of a call."""
    count = len(operation.jobs) if isinstance(operation, EnqueueMany) else 1
    if isinstance(outcome, EngineError):
        return [outcome] * count
    reply: object = outcome.reply
    if isinstance(reply, Enqueued):
        return [_refusal(reply, outcome.definite) or _existing(reply)]
    if not isinstance(reply, EnqueuedMany):
        return [ScriptFault(f"EnqueueMany: a reply of type {type(reply).__name__}")] * count
    if outcome.definite:
        return [_existing(item) for item in reply.items]
    return [_refusal(item, definite=False) or _existing(item) for item in reply.items]


def concluded(results: Sequence[Enqueued | EngineError]) -> list[Enqueued]:
    """The results of a bulk. Raises the failure when it is all there is, else PartlyEnqueued."""
    answered = [result for result in results if isinstance(result, Enqueued) and result.result != "moved"]
    if len(answered) == len(results):
        return answered
    results = [
        _moved_error(item) if isinstance(item, Enqueued) and item.result == "moved" else item
        for item in results
    ]
    failures = [result for result in results if isinstance(result, EngineError)]
    first = failures[0]
    none_applied = all(
        isinstance(failure, ServerUnavailable | UnknownParent | UnsafeServer) for failure in failures
    )
    if not answered and (none_applied or all(failure is first for failure in failures)):
        raise first
    raise PartlyEnqueued(
        f"{len(answered)} of {len(results)} jobs are answered, the others not: {first}", results
    )


def _moved_error(item: Enqueued) -> UnsafeServer:
    """The error for a job of a queue that has shards, of which its producer does not know."""
    return UnsafeServer(
        f"job {item.job}: its queue has {item.holder or 'several'} shards; Queue(..., shards=...) says so"
    )
