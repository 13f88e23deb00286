"""Classifies redis-py's exceptions: an error that the server sent, or a connection that failed."""

from __future__ import annotations

import redis

from engine.errors import UnsafeServer
from engine.wire.drivers.delivery import Trouble, trouble_of_reply

#: What a connection raises while it is made or used; UnsafeServer comes from the handshake.
FAILURES = (redis.RedisError, OSError, UnsafeServer)


def is_reply(error: BaseException) -> bool:
    """True for an error that the server sent, False for a connection that failed."""
    return isinstance(error, redis.ResponseError) or getattr(error, "status_code", None) is not None


def message_of(error: BaseException) -> str:
    """One line for people: a server's error with its code, which redis-py cuts off for the codes that it knows; any other
    with its type."""
    if not is_reply(error):
        return f"{type(error).__name__}: {error}"
    code = getattr(error, "status_code", None)
    text = str(error)
    return f"{code} {text}" if isinstance(code, str) and not text.startswith(code) else text


def trouble_of(error: BaseException, *, sent: bool) -> Trouble:
    """What an exception means for a send: `sent` tells whether any byte of it may have left."""
    if is_reply(error):
        trouble = trouble_of_reply(message_of(error))
        # What a server says while it is greeted (a database that it has not, a password that it does not want) is no fault of the
        # call that had to wait for that.
        return trouble if sent or trouble is not Trouble.FAULT else Trouble.REFUSED
    return Trouble.UNANSWERED if sent else Trouble.NOT_SENT
