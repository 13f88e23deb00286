"""What counts where nothing is said: the default of each parameter, field and class attribute, and the numbers that modules name.
A change of one changes every call that leaves it out, so it is a change of `recorded/defaults.txt` as well:
`python -m tests.engine.test_defaults` writes that."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import engine

RECORDED = Path(__file__).with_name("recorded") / "defaults.txt"
#: What tests have set longer, and what the machine says.
ELSEWHERE = ("engine.redis.endpoint.ConnectOptions", "engine.redis.endpoint.ConnectOptions.__init__", "engine.worker.process")
PLAIN = (bool, int, float, str, bytes, type(None))


def is_number(value: object) -> bool:
    """Whether it is a whole number, or some of them, also by name."""
    items: Any = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | range) else (value,)
    return bool(items) and all(type(item) is int or (isinstance(item, tuple) and is_number(item)) for item in items)


def words(values: Mapping[str, Any]) -> str:
    """Those of plain values, as they would be written."""
    return ", ".join(f"{name}={value!a}" for name, value in values.items() if type(value) in PLAIN or is_number(value))


def defaults(function: Any) -> dict[str, Any]:
    """What each parameter is that is left out."""
    return {name: at.default for name, at in inspect.signature(function).parameters.items()}


def of_class(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Of a class: its own attributes, its fields, and its methods."""
    flags = ["frozen"] * getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    flags += ["total"] * getattr(kind, "__total__", False)
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    for part in ("init", "repr", "compare"):
        flags += [f"{field.name} not in {part}" for field in fields if not getattr(field, part)]
    own = {name: value for name, value in vars(kind).items() if not name.startswith("__")}
    # Private ones may hold what this process has come to.
    attributes = defaults(kind) if fields else {} if kind.__name__.startswith("_") else own
    yield "", " ".join([words(attributes), *flags]).strip()
    for name, value in {**own, "__init__": vars(kind).get("__init__") if not fields else None}.items():
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function) and function.__module__ == kind.__module__:
            yield f".{name}", words(defaults(function))
    yield ".__new__", words(vars(kind).get("_field_defaults", {}))


def lines() -> Iterator[str]:
    """All that counts where nothing is said, a line for each function, class and module that has any."""
    for found in pkgutil.walk_packages(engine.__path__, "engine."):
        if found.name.endswith("__main__"):
            continue
        module = import_module(found.name)
        told = [("", words({name: value for name, value in vars(module).items() if name.isupper() and is_number(value)}))]
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") == found.name and name == getattr(value, "__name__", ""):
                parts = of_class(value) if inspect.isclass(value) else [("", words(defaults(value)))] if callable(value) else ()
                told += [(f".{name}{part}", said) for part, said in parts]
        yield from (f"{found.name}{name}: {said}" for name, said in told if said and f"{found.name}{name}" not in ELSEWHERE)


def test_what_counts_where_nothing_is_said_stays() -> None:
    assert sorted(lines()) == RECORDED.read_text().splitlines()


if __name__ == "__main__":
    RECORDED.write_text("".join(f"{line}\n" for line in sorted(lines())))
