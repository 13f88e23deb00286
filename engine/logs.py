"""Log records carry fields where they are known: `worker`, `queue`, `job_id`, `job_name`, `fence`, `attempt`.
Those of the worker itself do, and all that a handler logs, with any logger. A handler may be in a thread, in
a coroutine and what it awaits, or in a child process.

The fields are attributes of the record, so a formatter of any library finds them; what a record has of its
own (`extra=`) stays. `TextFormatter` writes lines for people, `JsonFormatter` each record as one line of
JSON, for those who collect them:

    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)

A batch of several jobs has the name of its jobs alone. A thread that a handler starts itself has no fields,
but in a child process. The records of a child process are sent to its worker, whose configuration writes
them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from engine.errors import bounded_repr, json_text, redacted, tell_unlogged
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease

#: What a record may carry beside its message.
FIELDS = ("worker", "queue", "job_id", "job_name", "fence", "attempt")
#: Where a record keeps the fields of its run until it is formatted.
_OF_RUN = "_ironclaim_run"
_PLAIN = (str, int, float, bool, type(None))
#: What records have beside what their `extra=` gave them.
_OF_EACH = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "traceback", _OF_RUN, *FIELDS)
)


class Source(NamedTuple):
    """Which worker writes a record, and of which queue; '' = unknown."""

    worker: str = ""
    queue: str = ""


NOBODY = Source()


def about(subject: LeasedJob | Lease | None, source: Source = NOBODY) -> dict[str, Any]:
    """The fields of a record about this job or lease, for `extra=`."""
    fields: dict[str, Any] = {name: value for name, value in source._asdict().items() if value}
    if isinstance(subject, LeasedJob):
        fields |= {"job_name": subject.name, "attempt": subject.failures + 1}
        subject = subject.lease
    if subject is not None:
        fields |= {"job_id": subject.job, "fence": subject.fence}
    return fields


#: What runs here: the worker, and the job, or of a batch of several the name of its jobs.
Run = tuple[Source, LeasedJob | str]
running: ContextVar[Run | None] = ContextVar("ironclaim-run", default=None)


class _Everywhere:
    """What runs in all threads of a child process."""

    run: Run | None = None


def run_everywhere(run: Run | None) -> None:
    """Set what runs in this process, which runs one thing at a time: also threads that a handler starts have
    its fields."""
    _Everywhere.run = run


def _fields_of(run: Run) -> dict[str, Any]:
    source, work = run
    return about(None, source) | {"job_name": work} if isinstance(work, str) else about(work, source)


class _OfRun(logging.LogRecord):
    """A record with the fields of the run in which it was made. They become its attributes when it is
    formatted: `extra` must not name an attribute that is there before, and may name these."""

    def getMessage(self) -> str:  # noqa: N802  as logging calls it
        """The text, once the fields are attributes."""
        self._fill()
        return super().getMessage()

    def _fill(self) -> None:
        for name, value in self.__dict__.pop(_OF_RUN, {}).items():
            self.__dict__.setdefault(name, value)

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get(_OF_RUN, {})
        if name in found:
            return found[name]
        raise AttributeError(f"the record has no attribute {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies, and for handlers that send records to other processes, which do not know this class."""
        self._fill()
        return logging.makeLogRecord, (dict(self.__dict__),)


@lru_cache(maxsize=64)
def _of_run(kind: type[logging.LogRecord]) -> type[logging.LogRecord]:
    """The class above, of records of a service's own class."""
    if issubclass(kind, _OfRun):
        return kind
    return _OfRun if kind is logging.LogRecord else type(kind.__name__, (_OfRun, kind), {})


class _Installed:
    once = False


def mark_records() -> None:
    """From now on records that are made while a handler runs carry its fields. A record factory that the
    service has set is kept; a logging configuration does not touch it."""
    if _Installed.once:
        return
    _Installed.once = True
    make = logging.getLogRecordFactory()

    def made(*arguments: Any, **more: Any) -> logging.LogRecord:
        record = make(*arguments, **more)
        run = running.get() or _Everywhere.run
        if run is not None:
            with contextlib.suppress(TypeError):
                # TypeError: of a class of the service whose layout is another.
                record.__class__ = _of_run(type(record))
                record.__dict__[_OF_RUN] = _fields_of(run)
        return record

    logging.setLogRecordFactory(made)


def _is_ours(logger: str) -> bool:
    return logger.partition(".")[0] == "ironclaim"


def _told(record: logging.LogRecord, text: str) -> str:
    """A text of a record; of the engine's own, which may speak of its servers, without their passwords."""
    return redacted(text) if _is_ours(record.name) else text


class TextFormatter(logging.Formatter):
    """A line for people: time, level, the job of what a handler logs, and the message. The worker's own
    messages name it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """All lines of a record."""
        text = super().format(record)
        first = self.formatMessage(record)
        return first + _told(record, text.removeprefix(first))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  as logging calls it
        """The first line."""
        job, name = getattr(record, "job_id", None), getattr(record, "job_name", None)
        if name is None or _is_ours(record.name):
            return _told(record, super().formatMessage(record))
        whose = name if job is None else f"{name}[{job}]"
        return self._style._fmt % {**record.__dict__, "message": f"{whose}: {record.message}"}


class JsonFormatter(logging.Formatter):
    """One line of JSON for each record: `time` (UTC), `level`, `logger`, `message`, the fields above,
    `traceback` where there is one, `outcome` of a failed run, and what `extra=` gave it. It also formats
    records of other libraries."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _told(record, record.getMessage()),
        }
        for field in FIELDS:
            value = getattr(record, field, None)
            if value is not None:
                line[field] = value
        trace = getattr(record, "traceback", None) or (
            self.formatException(record.exc_info) if record.exc_info else record.exc_text
        )
        if trace:
            line["traceback"] = _told(record, trace)
        for field, value in vars(record).items():
            if field not in _OF_EACH:
                line.setdefault(field, _sayable(value))
        return json_text(line, spaced=True)


def _sayable(value: object) -> object:
    """A value that JSON can say: itself, what it spells, or its repr."""
    try:
        return json.loads(json.dumps(value, default=str))
    except Exception:
        return bounded_repr(value)


# -- what the configuration of a service leaves


def _loggers() -> Iterator[logging.Logger]:
    yield logging.getLogger()
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield logger


def switch_on() -> None:
    """Switch the engine's own loggers on: a logging configuration switches off all loggers that were there
    before it, unless it says otherwise (`disable_existing_loggers`)."""
    for logger in _loggers():
        if _is_ours(logger.name):
            logger.disabled = False


def give_form(formatter: logging.Formatter) -> bool:
    """Let all handlers that write to stderr or stdout have this formatter. Returns whether one of them writes
    what the worker logs."""
    streams = (sys.stderr, sys.stdout)
    for logger in _loggers():
        for handler in logger.handlers:
            if getattr(handler, "stream", None) in streams:
                handler.setFormatter(formatter)
    at: logging.Logger | None = logging.getLogger("ironclaim.worker")
    while at is not None:
        if any(handler.formatter is formatter for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


# -- child processes


class Logged(NamedTuple):
    """A record of a child process on its way to the worker: its attributes."""

    attributes: dict[str, Any]


class _Forwarding(logging.Handler):
    def __init__(self, send: Callable[[Logged], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(Logged(_sendable(record)))
        except BaseException as failure:
            tell_unlogged(failure)


def _sendable(record: logging.LogRecord) -> dict[str, Any]:
    """The attributes of a record without objects that only this process knows."""
    text = record.getMessage()
    found = {
        name: _plain(value)
        for name, value in record.__dict__.items()
        if name not in ("args", "exc_info", "message", "msg")
    }
    trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else record.exc_text
    return {**found, "msg": text, "args": None, "exc_info": None, "exc_text": trace}


def _plain(value: object) -> object:
    if type(value) in _PLAIN:
        return value
    try:
        return json.loads(json.dumps(value, default=repr))
    except BaseException:
        # Whatever its text raises.
        return type(value).__name__


def levels() -> dict[str, int]:
    """The loggers of this process that have a level of their own; '' is the root."""
    return {
        "" if logger.parent is None else logger.name: logger.level for logger in _loggers() if logger.level
    }


class Forwarder:
    """Sends what this process logs to its worker, instead of to handlers that modules of a service have set.
    The worker has these as well: they would write everything twice, and a file from two processes."""

    def __init__(self, send: Callable[[Logged], None], wanted: Mapping[str, int]) -> None:
        self._handler = _Forwarding(send)
        mark_records()
        for name, level in wanted.items():
            logging.getLogger(name or None).setLevel(level)
        self.take_over()

    def take_over(self) -> None:
        """Replace the handlers that are there now; again after each import of a module of the service."""
        for logger in _loggers():
            ends = logger.parent is None or not logger.propagate
            logger.handlers[:] = [self._handler] if ends else []
            # Whether it is on is decided by the worker.
            logger.disabled = False


def write(logged: Logged) -> None:
    """Let this process write a record of its child, as if it were its own."""
    record = logging.LogRecord("", 0, "", 0, "", None, None)
    record.__dict__.update(logged.attributes)
    logger = logging.getLogger(record.name)
    if not logger.isEnabledFor(record.levelno):
        return
    try:
        logger.handle(record)
    except BaseException as failure:
        # A filter that raises must not come between the child and its answer.
        tell_unlogged(failure)
