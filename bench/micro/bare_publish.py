"""A bare redis-py loop that publishes with the engine's script, and builds the same bytes as the engine.

It has no driver, validation or operation objects, so the difference to it is the overhead of the engine.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import redis

import engine
from bench.micro.bare import NewSlot
from bench.micro.payload import PAYLOAD
from engine.models.dsps import DspsModel
from engine.ops.channels import NewMessage, Publish

_DEADLINE_MS = 10_000
#: Lifetime of the keys of a channel with the default expiry: half an hour and the margin.
_LIFE_S = 1_815
_IDS = ("message-one", "message-two")
#: The escapes that a channel applies to contents.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class BarePublish:
    """The loop for one channel. It takes the constant arguments from two calls that the model builds."""

    def __init__(self, channel: engine.Channel, plain: redis.Redis) -> None:
        self._plain = plain
        content, model = self._content(), DspsModel(channel.name)
        calls = [
            model.call(Publish((NewMessage(name, content),), _LIFE_S, not_after_ms=void_ms))
            for name, void_ms in zip(_IDS, (1, 2), strict=True)
        ]
        one, other = ((*call.keys, *call.arguments) for call in calls)
        self._words: list[Any] = list(one)
        self._id_at = [at for at, word in enumerate(one) if _holds(word, _IDS[0])]
        self._void_at = [at for at, (a, b) in enumerate(zip(one, other, strict=True)) if (a, b) in ((1, 2), ("1", "2"))]
        differ = {at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b}
        if differ != {*self._id_at, *self._void_at} or len(self._void_at) != 1:
            raise NewSlot("publish: other words than the id and the deadline differ from message to message")
        script = calls[0].script
        assert script is not None
        self._key_count = len(calls[0].keys)
        self._digest = str(plain.script_load(script.text))
        self._content_at = [at for at in range(len(one)) if _holds(one[at], content.decode())]

    def run(self, messages: int) -> None:
        """Publish this many messages, one by one."""
        words, evalsha, digest, key_count = self._words, self._plain.evalsha, self._digest, self._key_count
        templates = {at: words[at] if isinstance(words[at], str) else words[at].decode() for at in self._id_at}
        (void_at,) = self._void_at
        for _ in range(messages):
            name, content = secrets.token_hex(8), self._content().decode()
            for at, template in templates.items():
                words[at] = template.replace(_IDS[0], name)
                if at in self._content_at:
                    words[at] = f'{{"id":"{name}","content":{content}}}'
            words[void_at] = int(time.time() * 1000) + _DEADLINE_MS
            evalsha(digest, key_count, *words)

    @staticmethod
    def _content() -> bytes:
        return json.dumps(PAYLOAD, separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(_ESCAPES).encode()


def _holds(word: object, text: str) -> bool:
    """True when an argument of the call contains the text."""
    return text in (word.decode() if isinstance(word, bytes) else str(word))
