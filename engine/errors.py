"""The exceptions of the engine, under one root. Expected outcomes (duplicate, stale, nothing waiting) are return values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from engine.channel.values import Published
    from engine.ops.jobs import Enqueued


#: Of the text of an exception that is stored or shown, and of a value that an error names.
_ERROR_CHARACTERS_MAX = 1000
_SHOWN_CHARACTERS_MAX = 80


class EngineError(Exception):
    """The engine could not do what was asked."""


class Malformed(EngineError, ValueError):
    """A value is outside its bound. Nothing was sent.

    Fields: `field` names the option, `value` is what was given, `bound` says what is allowed.
    """

    def __init__(self, field: str, value: object, bound: str) -> None:
        super().__init__(f"{field}: {shown(value)} is not allowed, it must be {bound}")
        self.field = field
        self.value = value
        self.bound = bound


class LeaseLost(EngineError):
    """The lease of this job has ended: another worker may run it. Calls with its token are not applied."""


class OutcomeUnknown(EngineError):
    """The call was sent and not answered within its deadline: it may have been applied, now or later. An enqueue with an id of
    yours may be sent again."""


class PartlyEnqueued(OutcomeUnknown):
    """Some jobs of an `enqueue_many` were answered, and others were not. Sending all of them again with the same ids is safe;
    jobs that you gave no id get a new one each time.

    `results` holds for each job, in the order given, what came of it: an Enqueued, or the error of its call, which says whether
    it may have been applied (OutcomeUnknown) or certainly was not (ServerUnavailable).
    """

    def __init__(self, message: str, results: Sequence[Enqueued | EngineError]) -> None:
        super().__init__(message)
        self.results = tuple(results)


class UnknownParent(EngineError):
    """A job needs one of which the queue knows nothing: it was never enqueued, or it finished so long ago that it is forgotten.
    Nothing was applied.

    Fields: `job` is the id of the job that was refused, `parent` the id that it named.
    """

    def __init__(self, job: str, parent: str) -> None:
        super().__init__(f"job {job} needs {parent}, of which the queue knows nothing")
        self.job = job
        self.parent = parent


class ServerUnavailable(EngineError):
    """The server could not be reached, or refused the command, until the deadline. Nothing was applied."""


class ScriptFault(EngineError):
    """The server's reply is outside the contract of the script that was called."""


class WrongKeyType(ScriptFault):
    """A key that all jobs of the call need holds another type, written by somebody else; the message names the key and both
    types. As soon as the key is renamed or deleted, the same call works: nothing is lost meanwhile. The key of one job stops no
    other one: claims and sweeps set that job aside, and a lease whose run cannot be read is stale."""


class UnsafeServer(EngineError):
    """This server would lose jobs or locks by its configuration, so the engine does not use it."""


class UnsupportedFeature(EngineError):
    """The model of this queue does not have the feature that was asked for. Nothing was sent."""


class JobFailed(EngineError):
    """The job has ended without a result: it is dead, was cancelled or discarded, or has expired before anybody started it.

    Fields: `job` is its id, `outcome` is dead, cancelled, discarded or expired, `error` is the last one, as text.
    """

    def __init__(self, job: str, outcome: str, error: str) -> None:
        super().__init__(f"job {job} is {outcome}: {error}" if error else f"job {job} is {outcome}")
        self.job = job
        self.outcome = outcome
        self.error = error


class NoResult(EngineError, LookupError):
    """The job has finished, and what its function returned is not kept: its `result_ttl_ms` is over, or it was 0.

    Fields: `job` is its id.
    """

    def __init__(self, job: str) -> None:
        super().__init__(f"job {job} has finished, and what it returned is not kept")
        self.job = job


class BatchFailed(EngineError):
    """For handlers of batches to raise: some jobs have failed, each with what is said of it, and the others have finished.

    `failures`: by job id, an exception or a text; `results`: by job id, those of the others. An id that is not of the batch, and
    everything of the batch has failed. Raises Malformed for anything else.
    """

    def __init__(self, failures: Mapping[str, BaseException | str], results: Mapping[str, object] | None = None) -> None:
        given: object = failures
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("failures", given, "a mapping of job ids to exceptions or texts")
        for job, failure in cast("Mapping[object, object]", given).items():
            if not isinstance(job, str) or not isinstance(failure, BaseException | str):
                raise Malformed("failures", {job: failure}, "a mapping of job ids to exceptions or texts")
        told: object = {} if results is None else results
        if not isinstance(told, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("results", told, "a mapping of job ids to results")
        super().__init__(f"{len(failures)} jobs failed")
        self.failures = dict(failures)
        self.results = dict(cast("Mapping[str, object]", told))


class UnknownJob(EngineError, LookupError):
    """The server knows no job of this id, and no result of one: it never was, or it ended so long ago that nothing is left."""


class TimedOut(EngineError, TimeoutError):
    """The job has not ended within the time that was allowed for waiting. It goes on.

    Fields: `job` is its id, which `results.wait` takes, `wait_ms` the time that was allowed.
    """

    def __init__(self, job: str, wait_ms: int) -> None:
        super().__init__(f"job {job} has not ended within {wait_ms} ms")
        self.job = job
        self.wait_ms = wait_ms


class PartlyPublished(OutcomeUnknown):
    """Some messages of a `publish_many` were answered, and others were not. Publishing all of them again is safe: what is there
    already is a duplicate.

    `results` holds for each message, in the order given, what came of it: a Published, or the error of its call, which says
    whether it may have been applied (OutcomeUnknown) or certainly was not (ServerUnavailable).
    """

    def __init__(self, message: str, results: Sequence[Published | EngineError]) -> None:
        super().__init__(message)
        self.results = tuple(results)


class ChannelNotFound(EngineError, LookupError):
    """The channel does not exist: nobody has published or subscribed yet, or nobody has used it for so long that it expired.
    Nothing was changed; `publish` and `subscribe` create it."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"channel {channel} does not exist")
        self.channel = channel


class SubscriptionNotFound(EngineError, LookupError):
    """The channel has no such subscriber: it was never created, was deleted, or has not fetched for so long that it expired.
    Nothing was changed; `subscribe` creates it, and its first message is the next one that is published."""

    def __init__(self, channel: str, subscriber: str) -> None:
        super().__init__(f"channel {channel} has no subscriber {subscriber}")
        self.channel = channel
        self.subscriber = subscriber


def shown(value: object) -> str:
    """A value as an error names it: its repr, bounded, and of characters that UTF-8 can encode."""
    try:
        text = repr(value)[: _SHOWN_CHARACTERS_MAX + 1].encode(errors="backslashreplace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Too deep, too many digits, or a __repr__ that raises: the error must still name the field.
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def describe(failure: BaseException) -> str:
    """An exception as text that can be stored: bounded, and without characters that UTF-8 cannot encode."""
    try:
        text = f"{type(failure).__name__}: {failure}"
    except BaseException:
        # Whatever its text raises, also SystemExit: this thread still has to record the failed run.
        text = type.__dict__["__name__"].__get__(type(failure))
    return bounded_error(text)


def bounded_error(text: str) -> str:
    """A short error text that can be stored."""
    return text[:_ERROR_CHARACTERS_MAX].encode(errors="replace").decode()
