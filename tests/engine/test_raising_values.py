"""Values whose classes raise, whatever they are asked: each place that takes one says Malformed and names its field."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, cast

from engine import AsyncQueue, Channel, ConnectOptions, Malformed, PriorityQueue, Queue, Scheduler, Worker, WorkerGroup, models
from engine.options import OPTIONS
from engine.testing import free_port


def _raise(*_: object, **__: object) -> Any:
    raise OverflowError("odd")


_ASKED = ("bool", "eq", "str", "repr", "len", "iter", "hash", "int", "float", "index", "call", "getitem", "lt", "le", "ge", "gt")
_COMPARED = {f"__{name}__": _raise for name in _ASKED}
_READ = dict.fromkeys(("keys", "items", "values", "get"), _raise)


def _odd(base: type, **more: Any) -> type:
    return type(f"Odd{base.__name__.title()}", (base,), {**_COMPARED, **more})


def _work() -> None: ...


def _breaks_off() -> Iterator[object]:
    yield {"name": "b", "payload": 1}
    raise OverflowError("odd")


def values() -> list[Any]:
    """One of each class; new ones, as a generator is used up."""
    return [
        _odd(object, __getattr__=_raise)(),
        _odd(object, __getattribute__=_raise)(),
        _odd(str)("x"),
        _odd(int)(3),
        _odd(float)(3.5),
        _odd(timedelta, __truediv__=_raise)(1),
        _odd(dict, **_READ)(a=1),
        _odd(Mapping, **_READ)(),
        _odd(list)([1]),
        _breaks_off(),
    ]


def _with(make: Callable[..., object], names: Iterator[str] | list[str]) -> dict[str, Callable[[Any], object]]:
    return {name: lambda value, name=name: make(**{name: value}) for name in names}


def _settings(kind: type) -> list[str]:
    found = inspect.signature(kind.__init__).parameters.values()
    return [one.name for one in found if one.kind is one.KEYWORD_ONLY and one.name not in ("gate", "observer", "processes")]


def _places(url: str) -> dict[str, Callable[[Any], object]]:
    """What takes a value, by what takes it and its field; a place without a field may name any."""
    options = ConnectOptions(timeout_ms=10, connect_timeout_ms=10, deadline_ms=10)
    queue, channel = Queue("q", url=url, connect=options), Channel("c", url=url, connect=options)
    queue.job("a")(_work)
    at: dict[str, object] = {"url": url, "connect": options}

    def of_url(kind: Any, name: str) -> Callable[..., object]:
        return lambda **given: kind(name, **({} if {"client", "url"} & set(given) else at) | given)

    groups: dict[str, dict[str, Any]] = {
        "Worker": {"queue": Worker, "handlers": lambda it: Worker(queue, it)}
        | _with(lambda **given: Worker(queue, **given), _settings(Worker)),
        "Scheduler": {"queue": Scheduler} | _with(lambda **given: Scheduler(queue, **given), _settings(Scheduler)),
        "Queue": {"": lambda it: Queue(it, url=url), "model": lambda it: Queue("q", it, url=url)}
        | _with(of_url(Queue, "q"), _settings(Queue)),
        "AsyncQueue": {"": lambda it: AsyncQueue(it, url=url)} | _with(of_url(AsyncQueue, "q"), _settings(AsyncQueue)),
        "Channel": {"": lambda it: Channel(it, url=url), "model": lambda it: Channel("c", it, url=url)},
        "WorkerGroup": {"queues": WorkerGroup},
        "PriorityQueue": {"": lambda it: PriorityQueue(it, url=url)},
        "Bananas": _with(lambda **given: Queue("q", models.Bananas(**given), url=url), ["layout", "job_ttl_s"]),
        "Mosquito": _with(lambda **given: Queue("q", models.Mosquito(**given), url=url), ["layout", "coordinate", "dead_ttl_s"]),
        "enqueue": _with(lambda **given: queue.enqueue("b", 1, **given), [*OPTIONS, "id"])
        | {"name": lambda it: queue.enqueue(it, 1), "payload": lambda it: queue.enqueue("b", it)},
        "enqueue_many": {"jobs": queue.enqueue_many, "jobs[0]": lambda it: queue.enqueue_many([it])}
        | {
            f"jobs[0].{field}": lambda it, field=field: queue.enqueue_many([{"name": "b", "payload": 1} | {field: it}])
            for field in ("name", "payload", "id", "headers", "key")
        },
        "publish_many": {"messages": channel.publish_many, "messages[0]": lambda it: channel.publish_many([it])}
        | {"messages[0].id": lambda it: channel.publish_many([(it, 1)])}
        | {"messages[0].content": lambda it: channel.publish_many([("a", it)])},
        "set_limit": _with(
            lambda **given: queue.set_limit("b", **cast("dict[str, Any]", {"rate": 1, "per_ms": 1} | given)),
            ["concurrency", "rate", "per_ms", "window"],
        )
        | {"name": lambda it: queue.set_limit(it, concurrency=1), "key": lambda it: queue.set_limit(key=it, concurrency=1)},
    }
    return {f"{group} {field}": take for group, places in groups.items() for field, take in places.items()}


def test_whatever_the_class_of_a_value_raises_is_malformed_and_names_the_field() -> None:
    refused, wrong = 0, list[object]()
    for place, take in _places(f"redis://127.0.0.1:{free_port()}").items():
        for value in values():
            try:
                take(value)
            except Malformed as error:
                refused += 1
                wanted = place.partition(" ")[2].split(".")[-1].partition("[")[0]
                if wanted not in str(error).partition(": ")[0].replace(" ", "_"):
                    wrong.append((place, type(value).__name__, str(error)))
            except Exception as error:
                # What fits is sent to a server that is not there.
                if type(error).__name__ not in ("ServerUnavailable", "UnsupportedFeature"):
                    wrong.append((place, type(value).__name__, repr(error)))
    assert not wrong
    assert refused > 500
