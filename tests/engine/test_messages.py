"""What people read when something is wrong: the field, the value, the bound, and no words of the engine's own."""

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

import engine
from engine import EngineError, Malformed, Queue, ServerUnavailable
from engine.redis import exchange
from tests.conformance.declared import every_operation
from tests.engine.using import Call, refused, some_handlers

LISTED = "engine.JobOptions lists them"
CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda queue: queue.enqueue("a", 1, atempts=3), f"atempts: an int .* an option of jobs, perhaps attempts; {LISTED}"),
    (lambda queue: queue.enqueue("a", 1, zzz=3), f"zzz: an int .* an option of jobs; {LISTED}"),
    (lambda queue: queue.enqueue_many([{"name": "a", "payload": 1, "delay": 3}]), r"jobs\[0\]: .delay. .* perhaps delay_ms"),
    (lambda queue: queue.enqueue("two words", 1), "name: 'two words' .* text of 1 to 128 ASCII letters, digits and _ . : -$"),
    (lambda queue: queue.set_limit(), "name: None .* the name of jobs, or else key= a key of theirs"),
    (lambda queue: queue.set_limit("a", key="b", rate=1, per_ms=1), "key: 'b' .* left out where a name is given"),
    (lambda queue: queue.set_limit("a"), "concurrency: 0 .* 1 to 100000 where no rate is given; remove_limit takes a limit away"),
    (lambda queue: queue.set_limit("a", rate=5), "per_ms: 0 .* 1 to 3162240000000 together with a rate"),
    (lambda queue: queue.set_limit("a", per_ms=5), "per_ms: 5 .* 0 without a rate"),
    (lambda queue: some_handlers().find("wrok"), "name: 'wrok' .* one that this worker handles: work$"),
    (lambda queue: queue.schedules.get("two words"), "name: 'two words' .* text of 1 to 100 ASCII letters, digits and _ . : -$"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=range(len(CALLS)))
def test_a_message_says_what_is_allowed(nowhere: Queue, call: Callable[[Queue], Any], message: str) -> None:
    refused(Malformed, f"^{message}", call, nowhere)


def test_a_call_that_fails_is_named_in_words(nowhere: Queue) -> None:
    refused(ServerUnavailable, "^counts: ", nowhere.counts)
    kinds = every_operation()
    assert len(kinds) > 30
    for kind in kinds:
        operation: Any = object.__new__(kind)
        assert re.fullmatch("[a-z. ]+", exchange._name(Call(None, (), (), str, operation)))  # pyright: ignore[reportPrivateUsage]


#: One of each class whose constructor takes other arguments than a message.
ERRORS: list[EngineError] = [
    Malformed("card", {"number": 1}, "a text", private=True), engine.UnknownParent("child", "parent"),
    engine.JobFailed("job", "dead", "ValueError: no"), engine.NoResult("job"), engine.TimedOut("job", 5),
    engine.BatchFailed({"a": "no"}, {"b": 1}), engine.PartlyEnqueued("partly", [ServerUnavailable("away")]),
    engine.PartlyPublished("partly", []), engine.ChannelNotFound("news"), engine.SubscriptionNotFound("news", "reader"),
]  # fmt: skip


@pytest.mark.parametrize("error", [*ERRORS, engine.LeaseLost("over")], ids=lambda error: type(error).__name__)
def test_an_error_crosses_a_border_of_processes(error: EngineError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), repr(vars(again))) == (type(error), str(error), repr(vars(error)))


def test_each_error_that_takes_arguments_of_its_own_is_sent_across() -> None:
    own = {kind for kind in vars(engine).values() if isinstance(kind, type) and issubclass(kind, EngineError)}
    assert {kind for kind in own if "__init__" in vars(kind)} == {type(error) for error in ERRORS}
