"""Values whose classes raise, whatever they are asked: each place that takes one says Malformed and names its field."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from engine import AsyncQueue, Channel, ConnectOptions, Malformed, PriorityQueue, Queue, Scheduler, Worker, WorkerGroup, models
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.tokens import JwtSettings
from engine.http.channels.webhooks.settings import WebhookRetry, WebhookSettings
from engine.http.settings import Access, HttpSettings, Token
from engine.options import OPTIONS
from engine.queue.metrics import Scaling


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
        *(_odd(object, __getattr__=_raise)(), _odd(object, __getattribute__=_raise)(), _odd(str)("x")),
        *(_odd(int)(3), _odd(float)(3.5), _odd(timedelta, __truediv__=_raise)(1), _odd(dict, **_READ)(a=1)),
        *(_odd(Mapping, **_READ)(), _odd(list)([1]), _breaks_off()),
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
        "WorkerGroup": {"queues": WorkerGroup}, "PriorityQueue": {"": lambda it: PriorityQueue(it, url=url)},
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
    }  # fmt: skip
    return {f"{group} {field}": take for group, places in groups.items() for field, take in places.items()}


class _Index:
    def __index__(self) -> int:
        return 1


#: What no setting of a number, of a truth value or of a list of texts is, though Python would take it for one.
ALMOST = (Decimal(1), _Index(), "1", b"1", math.nan, math.inf, 10**400, -(10**400), None, [1], "false")
#: Each settings class with what it needs.
SETTINGS: dict[type, dict[str, Any]] = {
    **{kind: {} for kind in (HttpSettings, ChannelPolicy, WebhookRetry, Scaling, ConnectOptions)},
    **{kind: {} for kind in (models.ChannelRule, models.Bananas, models.Mosquito, models.Dsps)}, Token: {"secret": "x" * 20},
    Access: {"role": "read"}, ChannelSettings: {"real_ip_header": "X-Forwarded-For"},
    WebhookSettings: {"url": "https://shop.example/"}, JwtSettings: {"iss": ["a"], "keys": {"HS256": ["A" * 64]}},
}  # fmt: skip


def test_each_field_of_settings_is_the_plain_value_that_it_is_declared_as() -> None:
    wrong, checked = list[object](), 0
    for kind, needed in SETTINGS.items():
        for field in dataclasses.fields(kind):
            plain = {"int": int, "float": float, "bool": bool}.get(str(field.type))
            almost = [] if plain is None else [*ALMOST, *((0, 1, 1.0) if plain is bool else (True,))]
            if "tuple[" in str(field.type) or "Sequence[" in str(field.type):
                almost = ["localhost", b"x", 5, [object()]]
            for value in [*values(), *almost]:
                try:
                    made = kind(**{**needed, field.name: value})
                except Malformed as error:
                    checked += 1
                    if field.name not in str(error).partition(":")[0]:
                        wrong.append((kind.__name__, field.name, type(value), str(error)))
                except Exception as error:
                    wrong.append((kind.__name__, field.name, type(value), repr(error)))
                else:
                    if any(value is one for one in almost) or (plain and type(getattr(made, field.name)) is not plain):
                        wrong.append((kind.__name__, field.name, "is taken", type(value)))
    assert not wrong and checked > 700
    whole = ChannelSettings(real_ip_header="X-Forwarded-For", trusted_proxy_hops=cast("int", 1.0))
    assert type(whole.trusted_proxy_hops) is int and whole.trusted_proxy_hops == 1
    assert HttpSettings(allowed_hosts=cast("Any", iter(["a", "b"]))).allowed_hosts == ("a", "b")
    with pytest.raises(Malformed) as hidden:
        ChannelSettings(admin_tokens=cast("Any", "hunter2" * 3))
    assert "hunter2" not in f"{hidden.value!r} {hidden.value.value!r}"


def test_whatever_the_class_of_a_value_raises_is_malformed_and_names_the_field(closed_port: int) -> None:
    refused, wrong = 0, list[object]()
    for place, take in _places(f"redis://127.0.0.1:{closed_port}").items():
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
    assert not wrong and refused > 500
