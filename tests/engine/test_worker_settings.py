"""The table of a worker's settings: every bound from both sides, and the same names wherever settings are given or read."""

import pydoc
from inspect import signature
from typing import Any, get_type_hints

import pytest

from engine import GroupSettings, Malformed, Queue, Worker, WorkerGroup, WorkerSettings
from engine.options import Checked, Choice, Duration, Flag, Whole, settings_of
from engine.testing import free_port
from tests.engine.helpers.producing import refused, some_handlers

ROWS = settings_of(GroupSettings)
HANDLERS = some_handlers(print, "job")
DAY_MS = 86_400_000
#: Settings that a setting needs beside it, for all of its bounds.
COMPANIONS: dict[str, dict[str, Any]] = {"sweep_ms": {"lease_ms": DAY_MS}, "weights": {"strategy": "weighted"}}
#: Of each setting that is no number, switch or word: values inside its bound, and values outside.
EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {
    "name": (["", "w" * 128, None], ["w" * 129, "two words", 7, b"w"]),
    "attributes": ([None, {}, {"a": [1]}], [{"a": "x" * 5000}, {1: 2}, "a", [("a", 1)], {"a": object()}]),
    "names": ([None, ["job"], ("job",)], [[], ["other"], "job", 7, [7]]),
    "priorities": ([None, (1, 10), [3, 7], (7, 7)], [(7, 3), (0, 3), (3, 11), (3,), 3, "37", (True, 3)]),
    "routes": ([["default"], ("r" * 64,), {"a", "b"}], [[], "gpu", ["r" * 65], [f"r{at}" for at in range(65)], None, 7]),
    "stack": ([None, "node"], ["two words", "", ["node"], 7]), "region": ([None, "eu"], ["two words", "", ["eu"], 7]),
    "capabilities": ([(), ["gpu", "gpu"], [f"c{at}" for at in range(32)]], ["gpu", [f"c{at}" for at in range(33)], None, 7]),
    "gate": ([None, lambda: True], [True, 7, "open"]),
    "weights": ([[1, 1000], (3, 1)], [None, [1], [1, 2, 3], [0, 1], [1, 1001], [1.5, 1], [True, 1], "31", 7]),
}  # fmt: skip


@pytest.fixture(scope="module")
def queues() -> Any:
    """Queues whose url leads to a port where nothing listens: any I/O would fail with another error than Malformed."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    with Queue("one", url=url) as one, Queue("two", url=url) as two:
        for queue in (one, two):
            queue.driver.deadline_ms = 0
        yield one, two


def values_of(name: str) -> tuple[list[Any], list[Any]]:
    """Values inside the bound of a setting, and values outside."""
    match ROWS[name].check:
        case Whole(least, most):
            return [least, most, float(most)], [least - 1, most + 1, -(10**18), True, None, "5", 1.5, [1]]
        case Flag():
            return [True, False], [0, 1, None, "on"]
        case Choice(words):
            return list(words), [words[0].upper(), "", None, 0, [words[0]]]
        case _:
            assert name in EXAMPLES, f"{name}: EXAMPLES needs values inside its bound, and values outside"
            return EXAMPLES[name]


@pytest.mark.feature("BN26")
@pytest.mark.parametrize("name", ROWS)
def test_a_setting_is_taken_within_its_bound_and_refused_by_name_beyond(name: str, queues: tuple[Queue, Queue]) -> None:
    good, bad = values_of(name)
    beside, of_group = COMPANIONS.get(name, {}), name not in settings_of(WorkerSettings)

    def make(value: Any) -> None:
        given: dict[str, Any] = {**beside, name: value}
        if name == "strategy" and value == "weighted":
            given["weights"] = [1, 1]
        WorkerGroup(queues, HANDLERS, **given)
        if not of_group:
            Worker(queues[0], HANDLERS, **given)

    for value in good:
        make(value)
    for value in bad:
        for made in (WorkerGroup,) if of_group else (WorkerGroup, Worker):
            served = queues if made is WorkerGroup else queues[0]
            error = refused(Malformed, "it must be", made, served, HANDLERS, **{**beside, name: value})
            assert error.field == ("worker name" if name == "name" else name) and "\n" not in str(error), value


def test_help_shows_each_setting_with_its_type_bound_and_default() -> None:
    for made, table, first in ((Worker, WorkerSettings, "queue"), (WorkerGroup, GroupSettings, "queues")):
        shown, own = signature(made).parameters, [first, "handlers"]
        assert list(shown) == own + list(settings_of(table)) == own + list(get_type_hints(table))
        defaults = {name: row.default for name, row in settings_of(table).items()}
        assert {name: shown[name].default for name in settings_of(table)} == defaults
    text = pydoc.plain(pydoc.render_doc(Worker))
    assert "grace_ms: typing.Annotated[int | datetime.timedelta, Duration(least=0, most=86400000)] = 30000" in text


def test_each_kind_of_check_is_tried() -> None:
    assert {type(row.check) for row in ROWS.values()} == {Whole, Duration, Flag, Choice, Checked, type(None)}
    assert {*EXAMPLES} == {name for name, row in ROWS.items() if row.check is None or isinstance(row.check, Checked)}


def test_what_can_be_read_once_reaches_each_worker_of_a_group(ironclaim_url: str) -> None:
    with Queue("a", url=ironclaim_url) as one, Queue("b", url=ironclaim_url) as other:
        group = WorkerGroup([one, other], HANDLERS, capabilities=iter(["gpu"]), routes=iter(["eu"]))
        for worker in group.workers:
            about = worker._settings.about  # pyright: ignore[reportPrivateUsage]
            assert "gpu" in str(about) and "eu" in str(about), about
