"""What a drill does with jobs that are left when their time is up: a slow machine is told from a queue that is stuck."""

from collections.abc import Iterator
from itertools import chain, count, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import drill as module
from chaos.drill import Drill
from chaos.errors import HarnessError
from tests.chaos import drills


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, numbers: Iterator[int], drained: Iterator[bool]) -> Drill:
    """A drill that waits for nothing: each of its waits ends as `drained` says. Its watch sees these numbers of finished jobs."""
    drill: Any = drills.calm_drill(folder)
    drill._watch = SimpleNamespace(finished=lambda: next(numbers))
    monkeypatch.setattr(Drill, "wait", lambda *_, **__: next(drained))
    return drill


def test_a_backlog_that_is_worked_off_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drill: Any = made(tmp_path, monkeypatch, count(), chain(repeat(False, 5), repeat(True)))
    assert drill._work_off() is True


def test_a_queue_that_does_not_move_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drill: Any = made(tmp_path, monkeypatch, chain(range(6), repeat(6)), repeat(False))
    assert drill._work_off() is False


def test_a_machine_that_is_too_slow_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot of what is left is taken then: it would look like jobs that are stuck. The spec says so as a value."""
    monkeypatch.setattr(module, "WORK_OFF_S", 0.01)
    drill: Any = made(tmp_path, monkeypatch, count(), repeat(False))
    monkeypatch.setattr(Drill, "_set_up", lambda *_: None)
    monkeypatch.setattr(Drill, "_carry_out", Drill._work_off)
    drill.run()
    words = "this machine was too slow: jobs were still worked off 0.01 s after their time was up"
    assert drill.outcome() == {"harness_errors": [words], "too_slow": True}


def test_another_error_of_the_harness_is_not_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise HarnessError("no load")

    drill: Any = drills.calm_drill(tmp_path)
    monkeypatch.setattr(Drill, "_set_up", stop)
    drill.run()
    assert drill.outcome() == {"harness_errors": ["no load"]}
