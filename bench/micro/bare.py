"""A bare redis-py loop that enqueues with the engine's script, and builds the same id and bytes as the engine.

It has no driver, validation or operation objects, so the difference to it is the overhead of the engine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import redis

import engine
from bench.micro.payload import NAME, PAYLOAD, compact
from engine.models.model import random_id
from engine.ops.base import Call
from engine.queue import producing

#: Slots that differ between jobs. If any other slot differs, the script has changed, and this loop refuses to run.
_OF_THE_JOB = {"job", "not_after_ms"}
_DEADLINE_MS = 10_000


class NewSlot(Exception):
    """The script has a slot that this loop does not know, so it would not build the same bytes."""


class BareEnqueue:
    """The loop for one queue. It takes the constant arguments from two calls that the model builds."""

    def __init__(self, queue: engine.Queue, plain: redis.Redis) -> None:
        self._plain = plain
        one, other = (self._call(queue, void_ms) for void_ms in (1, 2))
        assert one.script is not None
        names = (*one.script.keys, *one.script.arguments)
        words, others = (*one.keys, *one.arguments), (*other.keys, *other.arguments)
        differ = {name for name, a, b in zip(names, words, others, strict=True) if a != b}
        if differ != _OF_THE_JOB:
            raise NewSlot(f"enqueue: {sorted(differ)} differ from job to job, this loop knows {sorted(_OF_THE_JOB)}")
        slots = dict(zip(names, words, strict=True))
        payload = compact(PAYLOAD)
        self._words: list[Any] = list(words)
        self._at = {name: at for at, name in enumerate(names)}
        self._key_count = len(one.keys)
        self._digest = str(plain.script_load(one.script.text))
        self._job_prefix = queue.model.keys.job("")
        # The tail is a part that is equal for all jobs, then the payload.
        tail: Any = slots["tail"]
        self._middle = tail[: len(tail) - len(payload)]
        if tail != self._middle + payload:
            raise NewSlot("enqueue: the tail of the envelope has another layout than this loop builds")

    def run(self, jobs: int) -> None:
        """Enqueue this many jobs, one by one."""
        words, at, middle, dumps = self._words, self._at, self._middle, _encoder()
        at_job, at_void, at_tail = (at[name] for name in ("job", "not_after_ms", "tail"))
        evalsha, digest, key_count, new_id = self._plain.evalsha, self._digest, self._key_count, random_id
        for _ in range(jobs):
            void_ms = int(time.time() * 1000) + _DEADLINE_MS
            words[at_job] = self._job_prefix + new_id()
            words[at_void] = void_ms
            words[at_tail] = middle + dumps(PAYLOAD).encode()
            evalsha(digest, key_count, *words)

    @staticmethod
    def _call(queue: engine.Queue, void_ms: int) -> Call[Any]:
        draft = producing.draft(NAME, PAYLOAD, queue.payload_bytes_max)
        return queue.model.call(draft.stamped(void_ms))


def _encoder() -> Callable[[object], str]:
    """A JSON encoder with the engine's settings, built once."""
    return json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
