"""Calls what a service has given the engine beside its handlers, where a failure must change nothing: hooks after a run or an
enqueue, back-offs, gates, observers, what is told of a loss, and the filters and handlers of its log.

All of them are called by `spared`, because whatever they raise (CancelledError, SystemExit and GeneratorExit as well) would end a
thread of the engine, and the job that it has in hand would be held for ever.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

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
    """What the function returns, or `otherwise` where it raises; that is logged with `said`, a message and its arguments. Raises
    only what `passes`."""
    try:
        return function(*arguments)
    except BaseException as failure:
        if passes(failure):
            raise
        log.error(*said, exc_info=failure, extra=extra)  # pyright: ignore[reportArgumentType]
        return otherwise


def meant_for_the_caller(failure: BaseException) -> bool:
    """Whether an exception may have reached a function from outside, in a thread of the service: signal handlers raise in the
    main thread, and gevent ends greenlets and waits by exceptions of its own. They are not the function's, so they go on."""
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
