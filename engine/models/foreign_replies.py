"""Replies of foreign models that differ from those of Lanes: ids that the server assigned, and waits that end by polling."""

from __future__ import annotations

from typing import Any, cast

from engine.ops.jobs import Enqueue, Enqueued, EnqueuedMany, EnqueueMany
from engine.ops.sweeps import Woken

_LETTERS = {"c": "created", "r": "repeated", "d": "duplicate", "o": "orphan", "x": "refused"}
#: Fields per job of a call: its letter, its id, of a duplicate state and fence of the existing job, and the id of that job, or of
#: the parent that is unknown.
_WORDS = 5


def enqueued(operation: Enqueue | EnqueueMany, raw: Any) -> Enqueued | EnqueuedMany:
    """The result of each job of a call, with its id, which the server may have assigned."""
    jobs = (operation,) if isinstance(operation, Enqueue) else operation.jobs
    srv_us, flat = int(raw[0]), [word if isinstance(word, int) else word.decode() for word in raw[1]]
    if len(flat) != _WORDS * len(jobs):
        raise ValueError(f"{len(flat)} words for {len(jobs)} jobs")
    items = tuple(_item(srv_us, flat[at : at + _WORDS]) for at in range(0, len(flat), _WORDS))
    return items[0] if isinstance(operation, Enqueue) else EnqueuedMany(srv_us, items)


def woken(news: str, raw: Any) -> Woken:
    """A BLPOP reply: unless it is the news, there may be work, also without a marker, because foreign producers push none."""
    is_news = raw is not None and raw[0] in (news, news.encode())
    return Woken(not is_news, is_news)


def _item(srv_us: int, words: list[Any]) -> Enqueued:
    letter, job, state, fence, holder = words
    return Enqueued(srv_us, job, cast("Any", _LETTERS[letter]), state, int(fence), holder or job)
