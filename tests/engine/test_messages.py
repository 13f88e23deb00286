"""What people read when something is wrong: the field, the value, the bound, and no words of the engine's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from engine import Malformed, Queue, ServerUnavailable
from engine.redis import exchange
from engine.redis.call import Call
from tests.conformance.declared import every_operation

CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda queue: queue.enqueue("a", 1, atempts=3),
        "atempts: an int .* an option of jobs, perhaps attempts; engine.JobOptions lists them",
    ),
    (lambda queue: queue.enqueue("a", 1, zzz=3), "zzz: an int .* an option of jobs; engine.JobOptions lists them"),
    (lambda queue: queue.enqueue_many([{"name": "a", "payload": 1, "delay": 3}]), r"jobs\[0\]: .delay. .* perhaps delay_ms"),
    (lambda queue: queue.enqueue("two words", 1), "name: 'two words' .* text of 1 to 128 letters, digits and _ . : -$"),
    (lambda queue: queue.set_limit(), "name: None .* the name of jobs, or else key= a key of theirs"),
    (lambda queue: queue.set_limit("a", key="b", rate=1, per_ms=1), "key: 'b' .* left out where a name is given"),
    (lambda queue: queue.set_limit("a"), "concurrency: 0 .* 1 to 100000 where no rate is given; remove_limit takes a limit away"),
    (lambda queue: queue.set_limit("a", rate=5), "per_ms: 0 .* 1 to 3162240000000 together with a rate"),
    (lambda queue: queue.set_limit("a", per_ms=5), "per_ms: 5 .* 0 without a rate"),
    (lambda queue: queue.schedules.get("two words"), "name: 'two words' .* text of 1 to 100 letters, digits and _ . : -$"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=range(len(CALLS)))
def test_a_message_says_what_is_allowed(nowhere: Queue, call: Callable[[Queue], Any], message: str) -> None:
    with pytest.raises(Malformed, match=f"^{message}"):
        call(nowhere)


def test_a_call_that_fails_is_named_in_words(nowhere: Queue) -> None:
    with pytest.raises(ServerUnavailable, match="^counts: "):
        nowhere.counts()
    kinds = every_operation()
    assert len(kinds) > 30
    for kind in kinds:
        operation: Any = object.__new__(kind)
        assert re.fullmatch("[a-z. ]+", exchange._name(Call(None, (), (), str, operation)))  # pyright: ignore[reportPrivateUsage]
