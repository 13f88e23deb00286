"""Values with a mark in a place where secrets stand, and calls of all that a class has, with each of them at each parameter."""

import asyncio
import enum
import inspect
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_type_hints

from engine.errors import describe

#: It stands in no name, path or message of anybody else.
MARK = "hunter2zq"

#: What a secret stands in that people hand over by mistake, as a text.
URL = f"redis://user:{MARK}@10.255.255.1:6379/0"
DSN = f"host=h password={MARK} dbname=shop"


class Card:
    """An object whose text has all of it."""

    def __repr__(self) -> str:
        return f"Card({MARK})"

    __str__ = __repr__


class Paper(enum.Enum):
    MARKED = MARK


class Lost(Exception):
    """A failure of the service's own."""


def values() -> list[Any]:
    """One of each kind; new ones, as a generator is used up."""
    card = {"card": MARK, "pin": [MARK, 4111]}
    return [
        *(URL, DSN, f"{DSN}\n{URL}", [URL], card, [card], (MARK, {"n": card}), Card(), [Card()]),
        *({"card": Card()}, Paper.MARKED, Lost(MARK), (item for item in (card, Card()))),
    ]


#: What a parameter of this name gets while another one has the marked value.
PLAIN: dict[str, Any] = {
    **{"name": "n", "payload": 1, "id": "a", "ids": ["a"], "state": "waiting", "jobs": [], "messages": []},
    **{"subscriber": "s", "receipt": "r", "content": 1, "percent": 1.0, "now_ms": 1, "queue": "q"},
    **{"concurrency": 1, "every_ms": 60_000, "wait_ms": 1, "timeout_ms": 1, "per_ms": 1_000, "rate": 1},
}
#: Those that are given also where they have a default, because it is long.
ALWAYS = ("wait_ms", "timeout_ms")


@dataclass(frozen=True)
class Call:
    """A call of an entry, and what it is called in messages."""

    entry: str
    parameter: str
    make: Callable[[], Any]


def told(error: BaseException) -> str:
    """All that is shown of an error, by a log with its traceback as well, but for what the caller itself has raised."""
    chain, seen = list[BaseException](), set[int]()
    upcoming: list[BaseException | None] = [error]
    while upcoming:
        one = upcoming.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        upcoming += [one.__cause__, one.__context__ if not one.__suppress_context__ else None, *getattr(one, "exceptions", ())]
        if not isinstance(one, Lost):
            chain.append(one)
    texts = [describe(error)]
    for one in chain:
        texts += [repr(one), str(one), *traceback.format_exception_only(one)]
    return "\n".join(texts)


def parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """The parameters of a function, each option of an unpacked table as one of its own."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            try:
                hint = get_type_hints(function).get(parameter.name)
            except Exception:
                hint = None
            for name in getattr(getattr(hint, "__args__", (None,))[0], "__annotations__", ()):
                yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        elif parameter.kind is not parameter.VAR_POSITIONAL and parameter.name not in ("self", "cls"):
            yield parameter


def calls(entry: str, function: Callable[..., Any], **plain: Any) -> Iterator[Call]:
    """Calls of a function: each parameter in turn is each marked value, the others are plain or their defaults."""
    found, usual = list(parameters(function)), {**PLAIN, **plain}
    needed = {one.name: usual.get(one.name, "x") for one in found if one.default is one.empty or one.name in ALWAYS}

    def bound(name: str, at: int) -> Callable[[], Any]:
        def call() -> Any:
            given = {**needed, name: values()[at]}
            first = [given.pop(one.name) for one in found if one.name in given and one.kind is one.POSITIONAL_ONLY]
            return consumed(function(*first, **given))

        return call

    for parameter in found:
        for at in range(len(values())):
            yield Call(entry, parameter.name, bound(parameter.name, at))


def consumed(result: Any) -> Any:
    """What a call returns, awaited, and of a stream the first."""
    if inspect.isawaitable(result):

        async def wait() -> Any:
            return await result

        return asyncio.run(wait())
    if inspect.isasyncgen(result):

        async def first() -> Any:
            async for one in result:
                return one
            return None

        return asyncio.run(first())
    return next(result, None) if inspect.isgenerator(result) else result


def methods(entry: str, target: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods of an object."""
    for name in dir(type(target)):
        value = getattr(target, name, None) if not name.startswith("_") else None
        if callable(value) and not isinstance(value, type):
            yield f"{entry}.{name}", value
