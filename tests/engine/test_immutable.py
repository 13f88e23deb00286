"""Operations, replies and events are dataclasses that are made at the first look, because a process uses few of them."""

from __future__ import annotations

import copy
import inspect
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest

import engine
import record
import reports
from engine import Target
from engine.ops.admin import Pause
from engine.ops.base import frozen, immutable
from tests.engine.helpers.producing import refused


class Base:
    __slots__ = ()


def definition(decorator: Any) -> tuple[type[Any], type[Any]]:
    """A class and one that inherits it, with each kind of field."""

    @decorator
    class First(Base):
        """The first."""

        a: int
        b: str = "b"
        late: int = field(default=0, kw_only=True)

    @decorator
    class Second(First):
        """The second."""

        c: list[int] = field(default_factory=list[int], compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "a", self.a + 1)

        def __repr__(self) -> str:
            return f"second {self.a}"

    return First, Second


def described(kind: type[Any]) -> list[Any]:
    """What a user of `dataclasses` sees of it."""
    each = [(one.name, one.type, one.default, one.default_factory is MISSING, one.kw_only) for one in fields(kind)]
    return [is_dataclass(kind), each, str(inspect.signature(kind)), kind.__match_args__, kind.__doc__]


@pytest.mark.parametrize("looked_at", [0, 1])
@pytest.mark.parametrize(("decorator", "standard"), [
    (immutable, dataclass(slots=True, unsafe_hash=True)), (frozen, dataclass(slots=True, frozen=True)),
])  # fmt: skip
def test_it_is_the_dataclass_that_the_standard_library_makes(looked_at: int, decorator: Any, standard: Any) -> None:
    ours, theirs = definition(decorator), definition(standard)
    # Whichever of the two is looked at first.
    for at in (looked_at, 1 - looked_at):
        assert described(ours[at]) == described(theirs[at])
    for first, second in (ours, theirs):
        one, other = first(1, late=2), second(1, c=[3])
        assert (one.a, one.b, one.late) == (1, "b", 2) and (other.a, other.c) == (2, [3])
        assert one == first(1, late=2) and hash(one) == hash(first(1, late=2)) and one != first(1)
        assert other == second(1) and one != second(0) and repr(other) == "second 2"
        assert replace(one, a=5) == first(5, late=2) and copy.deepcopy(one) == one and not hasattr(one, "__dict__")
        # Of a frozen one with slots the standard library of Python 3.11 fails in another way.
        refused((AttributeError, TypeError), "", setattr, one, "d", 1)
        refused(TypeError, "", first)
        match one:
            case first(a, "b", late=late):  # pyright: ignore[reportGeneralTypeIssues]
                assert (a, late) == (1, 2)
            case _:
                pytest.fail("no match")


def test_a_frozen_one_refuses_what_a_frozen_dataclass_refuses() -> None:
    for first, second in (definition(frozen), definition(dataclass(slots=True, frozen=True))):
        for one, field_name in ((first(1), "a"), (second(1), "c"), (second(1), "b")):
            refused(FrozenInstanceError, f"cannot assign to field '{field_name}'", setattr, one, field_name, 5)
            refused(FrozenInstanceError, f"cannot delete field '{field_name}'", delattr, one, field_name)


FILLED = {
    "engine": "_Days NewJob _Found _Node Delivery Moved _One Decided Served Held",
    **{"record": "", "reports": "Usage Recorded Found Lease Samples Job Shard CheckResult"},
}


@pytest.mark.parametrize("package", [engine, record, reports], ids=lambda package: package.__name__)
def test_only_what_is_filled_step_by_step_can_be_assigned_to(package: Any) -> None:
    assert assignable(package) == set(FILLED[package.__name__].split())


@pytest.mark.parametrize("value", [Target(region=("eu",)), Pause("email", 5)], ids=["frozen", "immutable"])
def test_one_that_comes_from_another_process_is_read_before_any_was_made_here(value: Any) -> None:
    program = "import pickle, sys; read = pickle.loads(sys.stdin.buffer.read()); again = pickle.loads(pickle.dumps(read))"
    program += "; print(read == again, hash(read) == hash(again), read)"
    told = subprocess.check_output([sys.executable, "-c", program], input=pickle.dumps(value), timeout=120)
    assert told.decode().strip() == f"True True {value}"


def test_threads_may_look_at_it_at_once() -> None:
    for _ in range(20):
        _, second = definition(immutable)
        together = Barrier(4)

        def made(number: int, second: type[Any] = second, together: Barrier = together) -> Any:
            together.wait(60)
            return second(number)

        with ThreadPoolExecutor(4) as pool:
            assert [one.a for one in pool.map(made, range(4))] == [1, 2, 3, 4]


def test_a_process_makes_only_those_that_it_uses() -> None:
    program = """
import dataclasses
made, make = [], dataclasses._process_class
dataclasses._process_class = lambda cls, *how: made.append(cls.__name__) or make(cls, *how)
import engine
engine.Queue, engine.Worker
from engine.ops import admin, claims
before = len(made)
print(sorted({"Pause", "Resume", "Sweep", "Send", "TimerFired"} & set(made)))
admin.Pause("a", 5)
print(sorted(set(made[before:])))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=120, text=True)
    assert done.stdout.splitlines() == ["[]", "['AdminOperation', 'DeadlineBound', 'Pause']"]


def assignable(package: ModuleType) -> set[str]:
    """Their names: the others refuse it, so whoever shares a value of theirs with another thread need not look after it."""
    return {kind.__name__ for kind in _dataclasses(package) if not _refuses(kind)}


def _dataclasses(package: ModuleType) -> Iterator[type[Any]]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            for value in vars(import_module(found.name)).values():
                here = isinstance(value, type) and value.__module__ == found.name
                # Operations have a hash of their values instead, because they are made for each call.
                if here and "__dataclass_params__" in vars(value) and not value.__dataclass_params__.unsafe_hash:
                    yield value


def _refuses(kind: type[Any]) -> bool:
    for each in fields(kind):
        try:
            setattr(object.__new__(kind), each.name, None)
        except FrozenInstanceError:
            continue
        return False
    return True
