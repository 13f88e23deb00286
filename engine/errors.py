"""The exceptions of the engine, under one root. Expected outcomes (duplicate, stale, nothing waiting) are
return values."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from engine.ops.channels import Published
    from engine.ops.jobs import Enqueued

#: Of the text of an exception that is stored or shown, and of a value that an error names.
_ERROR_CHARACTERS_MAX = 1000
_SHOWN_CHARACTERS_MAX = 80
#: Of a value that an error shows: a longer one is outlined.
READ_CHARACTERS_MAX = 10_000

#: What an error shows whole: values of these types, and lists of them.
_LISTS = (list, tuple, set)
_PLAIN = (str, bytes, int, float, timedelta, datetime, type, FunctionType, BuiltinFunctionType)
#: Of a value of these an outline has its length.
_SIZED: tuple[Any, ...] = (str, bytes, bytearray, dict, *_LISTS)


class EngineError(Exception):
    """The engine could not do what was asked."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By its message and fields: the constructors of most take other arguments, and pools of processes
        # hand their failures on by pickle.
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[EngineError], args: tuple[Any, ...], fields: dict[str, Any]) -> EngineError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class Malformed(EngineError, ValueError):
    """A value is outside its bound. Nothing was sent.

    Fields: `field` names the option, `value` is what was given, `bound` says what is allowed. `private`: the
    value is of a job or a message. So no text shows it: the message has its type and size instead, or what
    `said` says of it. `unfit`: it is what a job came with, so that no further run can help.
    """

    #: Set where a run reads what its job came with.
    unfit = False

    def __init__(
        self, field: str, value: object, bound: str, *, private: bool = False, said: str = ""
    ) -> None:
        text = said or f"{outlined(value) if private else shown(value)} is not allowed"
        super().__init__(f"{field}: {text}, it must be {bound}")
        self.field = field
        self.value = value
        self.bound = bound
        self.private = private
        self.said = said

    def within(self, place: str) -> Malformed:
        """The same of a value that stands in a larger one: `jobs[3]` names its place there."""
        return Malformed(
            f"{place}.{self.field}", self.value, self.bound, private=self.private, said=self.said
        )


class LeaseLost(EngineError):
    """The lease of this job has ended: another worker may run it. Calls with its token are not applied."""


class OutcomeUnknown(EngineError):
    """The call was sent and not answered within its deadline: it may have been applied, now or later. An
    enqueue with an id of yours may be sent again."""


class PartlyEnqueued(OutcomeUnknown):
    """Some jobs of an `enqueue_many` were answered, and others were not. Sending all of them again with the
    same ids is safe; jobs that you gave no id get a new one each time.

    `results` holds for each job, in the order given, what came of it: an Enqueued, or the error of its call,
    which says whether it may have been applied (OutcomeUnknown) or certainly was not (ServerUnavailable).
    """

    def __init__(self, message: str, results: Sequence[Enqueued | EngineError]) -> None:
        super().__init__(message)
        self.results = tuple(results)


class UnknownParent(EngineError):
    """A job needs one of which the queue knows nothing: it was never enqueued, or it finished so long ago
    that it is forgotten. Nothing was applied.

    Fields: `job` is the id of the job that was refused, `parent` the id that it named.
    """

    def __init__(self, job: str, parent: str) -> None:
        super().__init__(
            f"job {job} needs {parent}, of which the queue knows nothing: a new one is enqueued before it, "
            "or stands before it in the same enqueue_many"
        )
        self.job = job
        self.parent = parent


class ServerUnavailable(EngineError):
    """The server could not be reached, or refused the command, until the deadline. Nothing was applied."""


class AuthenticationFailed(ServerUnavailable):
    """The server refused the user or the password of the url, or wants some. Nothing was applied; a repeat
    would be refused as well."""


class ScriptFault(EngineError):
    """The server's reply is outside the contract of the script that was called."""


class WrongKeyType(ScriptFault):
    """A key that all jobs of the call need holds another type, written by somebody else; the message names
    the key and both types. As soon as the key is renamed or deleted, the same call works: nothing is lost
    meanwhile. The key of one job stops no other one. Claims and sweeps set that job aside, and a lease whose
    run cannot be read is stale."""


class UnsafeServer(EngineError):
    """This server would lose jobs or locks by its configuration, so the engine does not use it."""


class UnsupportedFeature(EngineError):
    """The model of this queue does not have the feature that was asked for. Nothing was sent."""


class JobFailed(EngineError):
    """The job has ended without a result: it is dead, was cancelled, discarded or skipped, or expired before
    anybody started it.

    Fields: `job` is its id, `outcome` is dead, cancelled, discarded, skipped or expired, `error` is the last
    one, as text.
    """

    def __init__(self, job: str, outcome: str, error: str) -> None:
        super().__init__(f"job {job} is {outcome}: {error}" if error else f"job {job} is {outcome}")
        self.job = job
        self.outcome = outcome
        self.error = error


class NoResult(EngineError, LookupError):
    """The job has finished, and what its function returned is not kept: its `result_ttl_ms` is over, or it
    was 0.

    Fields: `job` is its id.
    """

    def __init__(self, job: str) -> None:
        super().__init__(f"job {job} has finished, and what it returned is not kept")
        self.job = job


class BatchFailed(EngineError):
    """For handlers of batches to raise: some jobs have failed, each with what is said of it, and the others
    have finished.

    `failures`: by job id, an exception or a text; `results`: by job id, those of the others. An id that is
    not of the batch, and everything of the batch has failed. Raises Malformed for anything else.
    """

    def __init__(
        self, failures: Mapping[str, BaseException | str], results: Mapping[str, object] | None = None
    ) -> None:
        given: object = failures
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("failures", given, "a mapping of job ids to exceptions or texts")
        for job, failure in cast("Mapping[object, object]", given).items():
            if not isinstance(job, str) or not isinstance(failure, BaseException | str):
                raise Malformed("failures", {job: failure}, "a mapping of job ids to exceptions or texts")
        told: object = {} if results is None else results
        if not isinstance(told, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("results", told, "a mapping of job ids to results")
        super().__init__(f"{counted(len(failures), 'job')} failed")
        self.failures = dict(failures)
        self.results = dict(cast("Mapping[str, object]", told))


class UnknownJob(EngineError, LookupError):
    """The server knows no job of this id, and no result. The job never was, or it ended so long ago that
    nothing is left."""


class TimedOut(EngineError, TimeoutError):
    """The job has not ended within the time that was allowed for waiting. It goes on.

    Fields: `job` is its id, which `results.wait` takes, `wait_ms` the time that was allowed.
    """

    def __init__(self, job: str, wait_ms: int) -> None:
        super().__init__(f"job {job} has not ended within {wait_ms} ms")
        self.job = job
        self.wait_ms = wait_ms


class PartlyPublished(OutcomeUnknown):
    """Some messages of a `publish_many` were answered, and others were not. Publishing all of them again is
    safe: what is there already is a duplicate.

    `results` holds for each message, in the order given, what came of it: a Published, or the error of its
    call, which says whether it may have been applied (OutcomeUnknown) or certainly was not
    (ServerUnavailable).
    """

    def __init__(self, message: str, results: Sequence[Published | EngineError]) -> None:
        super().__init__(message)
        self.results = tuple(results)


class ChannelNotFound(EngineError, LookupError):
    """The channel does not exist: nobody has published or subscribed yet, or nobody has used it for so long
    that it expired. Nothing was changed; `publish` and `subscribe` create it."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"channel {channel} does not exist")
        self.channel = channel


class SubscriptionNotFound(EngineError, LookupError):
    """The channel has no such subscriber: it was never created, was deleted, or has not fetched for so long
    that it expired. Nothing was changed; `subscribe` creates it, and its first message is the next one that
    is published."""

    def __init__(self, channel: str, subscriber: str) -> None:
        super().__init__(f"channel {channel} has no subscriber {subscriber}")
        self.channel = channel
        self.subscriber = subscriber


def shown(value: object) -> str:
    """A value as an error names it: its repr, bounded. A mapping or an object of any class is outlined,
    because it may hold somebody's data."""
    items = cast("Iterable[object]", value) if type(value) in _LISTS else (value,)
    return bounded_repr(value) if all(map(_is_plain, items)) else outlined(value)


def bounded_repr(value: object) -> str:
    """The repr of a value without passwords, bounded, and of characters that UTF-8 can encode; its outline if
    it has none, or a very long one."""
    try:
        text = repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Too deep, too many digits, or a __repr__ that raises.
        return outlined(value)
    if len(text) > READ_CHARACTERS_MAX:
        # Cut before it is read, a password could lose what it is known by.
        return outlined(value)
    text = redacted(text)[: _SHOWN_CHARACTERS_MAX + 1].encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def _is_plain(value: object) -> bool:
    """Whether its repr has nothing that somebody put into an object. By its type, because `isinstance` may
    run code of its class."""
    return value is None or issubclass(type(value), _PLAIN)


def outlined(value: object) -> str:
    """A value of which no text shows more than its type and length: payloads, arguments and results may be
    secret, and errors are logged and stored."""
    kind = type(value)
    # A metaclass may have a name of its own, which may raise.
    name: str = type.__dict__["__name__"].__get__(kind)[:_SHOWN_CHARACTERS_MAX]
    text = "None" if value is None else f"{'an' if name[:1] in 'aeioAEIO' else 'a'} {name}"
    # Neither isinstance nor len, because both may run code of the value's class, which may raise.
    sized = next((builtin for builtin in _SIZED if issubclass(kind, builtin)), None)
    return text if sized is None else f"{text} of length {sized.__len__(value)}"


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


def counted(number: int, what: str, written: str = "") -> str:
    """So many of something: `1 job`, `2 jobs`. `written`: how the number is, such as `,`."""
    return f"{number:{written}} {what}{'' if number == 1 else 's'}"


#: For a message that says more behind it.
BEFORE = "perhaps {}; "


def nearest(name: object, known: Iterable[str], *, least: float = 0.6, said: str = ", perhaps {}") -> str:
    """What a misspelt name may have been meant for: the known one that is most similar, from `least` of 1 on,
    as the end of a message or as `said`; empty without one."""
    found = get_close_matches(str(name), [*known], 1, least)
    return said.format(found[0]) if found else ""


# -- JSON for who looks at what is stored: whatever stands there, the answer is JSON in UTF-8 that every
# reader takes.
#
# What JSON cannot say is said as a text: `NaN`, a number beyond a double, a character without UTF-8 as
# `\ud800`, a value that is nested too deep by its type.

#: Lists and objects in each other. Readers of other languages take so many by default.
NESTING_MAX = 100
#: Digits of a whole number: Python writes no more than 4,300, and few readers take as many.
_DIGITS_MAX = 4_000
#: Ends of lines for Unicode, and so for readers of event streams such as `iter_lines` of httpx; for JSON they
#: are any character.
_BREAKS = {at: f"\\u{at:04x}" for at in (0x85, 0x2028, 0x2029)}
EPOCH = datetime.fromtimestamp(0, UTC)
_FIRST, _LAST = (end.replace(tzinfo=UTC) for end in (datetime.min, datetime.max))
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_to_lines = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_text(value: object, *, spaced: bool = False) -> str:
    """A value as JSON that UTF-8 can encode, in one line whoever reads it by lines; `spaced`: with a space
    after each comma and colon."""
    write = _to_lines if spaced else _to_json
    try:
        text = write(value)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        text = write(_sayable(value, 0))
    return text if text.isascii() else text.translate(_BREAKS)


def utf8(text: str) -> bytes:
    """A text in UTF-8; a lone surrogate, which has none, as `\\ud800`."""
    return text.encode(errors="backslashreplace")


def utc(ms: int) -> datetime:
    """A time of the server as a calendar has it. One beyond the year 9999 or before the year 1 is the end of
    that calendar."""
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return _LAST if ms > 0 else _FIRST


def _sayable(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return utf8(value).decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 10**_DIGITS_MAX else f"a whole number of {value.bit_length()} bits"
    if isinstance(value, float):
        return (
            value
            if math.isfinite(value)
            else {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), "NaN")
        )
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if not isinstance(value, Mapping | list | tuple) or depth >= NESTING_MAX:
        return f"a {type(cast('object', value)).__name__} that JSON cannot say"
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {
            str(_sayable(key, NESTING_MAX)): _sayable(member, depth + 1) for key, member in members.items()
        }
    return [_sayable(item, depth + 1) for item in cast("Sequence[object]", value)]


# -- Urls and other texts without the passwords in them, for errors, logs, and what commands print. One
# place for all of them.
#
# A password may hold any character. So it cannot be found by reading a url as a url: what could belong to one
# is left out.

HIDDEN = "***"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
#: An option of a url, or a word of the DSN of a database.
_OPTION = re.compile(
    r"((?<![a-z_])(?:[a-z_]*(?:password|passwd|pwd|secret|token|api_?key)|(?:[a-z_]*_)?username)\s*=\s*)"
    r"('(?:[^'\\]|\\.)*'|\S+)",
    re.IGNORECASE,
)
#: Hosts with ports that are numbers, up to where a path begins: nothing in them can be a password.
_HOSTS = re.compile(
    r"(?:\[[0-9a-f:.%]+\]|[\w.-]*)(?::\d*)?(?:,(?:\[[0-9a-f:.%]+\]|[\w.-]*)(?::\d*)?)*(?=[/?]|$)",
    re.IGNORECASE,
)
_QUERY = re.compile(r"[?#]")
_BEGIN = re.compile(r"(?<![a-z0-9+.-])[0-9+.-]*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
#: Where a url ends at the latest: another one begins behind a blank, a quote, a bracket or a comma.
_NEXT = re.compile(r"(?<=[\s'\"`(\[{<,;|])(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
#: What a sentence may put behind a url.
_PUNCTUATION = ".,;:!?|'\"`)]}>"


def redacted_url(url: str) -> str:
    """A url, also one that cannot be read, with `***` for whatever may be a user, a password or a token."""
    begin = _SCHEME.match(url)
    scheme, rest = ("", url) if begin is None else (begin.group(), url[begin.end() :])
    at, option = rest.rfind("@"), _OPTION.search(rest)
    place = rest[at + 1 :]
    if _HOSTS.match(place) is None or (option is not None and option.start() < at):
        # Nobody can tell where the password ends.
        return f"{scheme}{HIDDEN}"
    option = _OPTION.search(place)
    if option is not None:
        place = place[: option.end(1)] + HIDDEN
    return f"{scheme}{HIDDEN}@{place}" if at >= 0 else f"{scheme}{place}"


def without_query(url: str) -> str:
    """A url of a receiver, also one that cannot be read, with `***` for its user, query and fragment, because
    anything may be a secret there."""
    end = _QUERY.search(url)
    return redacted_url(url) if end is None else f"{redacted_url(url[: end.start()])}?{HIDDEN}"


def redacted(text: str) -> str:
    """A text in which urls and DSNs may stand, with `***` for their passwords. Others may write it, so it is
    searched in time by its length."""
    if "=" in text:
        text = _OPTION.sub(rf"\1{HIDDEN}", text)
    if "://" not in text:
        return text
    *earlier, last = map(_without_user, _NEXT.split(text))
    # Behind a password with a blank in it something may look like another url.
    return "".join([one if "@" in one else _placed(one) for one in earlier]) + last


def _without_user(text: str) -> str:
    """A text with `***` for what stands between its first url and its last `@`."""
    at = text.rfind("@")
    begin = _BEGIN.search(text, 0, at) if at >= 0 else None
    return text if begin is None else f"{text[: begin.end()]}{HIDDEN}{text[at:]}"


def _placed(text: str) -> str:
    """A text that may begin with a url, with `***` for what is no host there."""
    begin = _SCHEME.match(text)
    word = text[begin.end() :].split(maxsplit=1)[:1] if begin is not None else []
    if begin is None or not word or _HOSTS.match(word[0].rstrip(_PUNCTUATION)) is not None:
        return text
    return text.replace(word[0], HIDDEN, 1)


# -- Calls what a service has given the engine beside its handlers, where a failure must change nothing:
# hooks after a run or an enqueue, back-offs, gates, observers, what is told of a loss, and the filters
# and handlers of its log.
#
# All of them are called by `spared`, because whatever they raise (CancelledError, SystemExit and
# GeneratorExit as well) would end a thread of the engine, and the job that it has in hand would be held for
# ever.

T = TypeVar("T")


def spared(
    function: Callable[..., T],
    *arguments: Any,
    otherwise: T,
    log: logging.Logger,
    said: tuple[object, ...],
    extra: Mapping[str, object] | None = None,
    passes: Callable[[BaseException], bool] = lambda failure: False,
) -> T:
    """What the function returns, or `otherwise` where it raises; that is logged with `said`, a message and
    its arguments. Raises only what `passes`."""
    try:
        return function(*arguments)
    except BaseException as failure:
        if passes(failure):
            raise
        log.error(*said, exc_info=failure, extra=extra)  # pyright: ignore[reportArgumentType]
        return otherwise


def meant_for_the_caller(failure: BaseException) -> bool:
    """Whether an exception may have reached a function from outside, in a thread of the service. Signal
    handlers raise in the main thread, and gevent ends greenlets and waits by its own exceptions. They are not
    the function's, so they go on."""
    kind = type(failure)
    if issubclass(kind, KeyboardInterrupt | SystemExit):
        return threading.current_thread() is threading.main_thread()
    return str(kind.__module__).partition(".")[0] in ("gevent", "greenlet")


def said_by(failure: BaseException) -> str:
    """The text of an exception; where making it fails, the name of its class."""
    try:
        return str(failure)
    except BaseException:
        return type(failure).__name__


class _Spared(logging.Logger):
    """Whatever a record factory, filter or handler of the service raises ends with the record."""

    def _log(self, *arguments: Any, stacklevel: int = 1, **more: Any) -> None:
        try:
            super()._log(*arguments, stacklevel=stacklevel + 1, **more)
        except BaseException as failure:
            if meant_for_the_caller(failure):
                raise
            tell_unlogged(failure)


def logger(name: str) -> logging.Logger:
    """A logger of the engine, which never raises."""
    found = logging.getLogger(name)
    if not isinstance(found, _Spared):
        kind = type(found)
        found.__class__ = _Spared if kind is logging.Logger else type(kind.__name__, (_Spared, kind), {})
    return found


def tell_unlogged(failure: BaseException) -> None:
    """Write on stderr what the log could not say, unless `logging.raiseExceptions` is off."""
    # A stderr that is closed, or None: then there is nobody to tell.
    with suppress(BaseException):
        if logging.raiseExceptions:
            sys.stderr.write(f"a record could not be logged, because of {type(failure).__name__}:\n")
            traceback.print_exception(failure, file=sys.stderr)
