"""Live progress: redrawn on a terminal, line by line elsewhere, with rates over a window."""

from io import StringIO
from typing import Any

import pytest

from chaos.progress import PLAIN_PERIOD_S, TERMINAL_PERIOD_S, Progress, State
from tests.golden import Told, tells


class Stream(StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def state(created: int, finished: int, phase: str = "lead-in", fault: str = "") -> State:
    return State(phase, created, finished, 3, 2, 1, 2, 3, fault)


def shown(terminal: bool, **more: Any) -> tuple[Progress, Clock, Stream]:
    clock, stream = Clock(), Stream(terminal)
    return Progress(stream, clock_s=clock, **more), clock, stream


def phase_rates_backlog_workers_and_the_fault_in_force() -> Told:
    progress, clock, stream = shown(terminal=False)
    progress.draw(state(0, 0))
    clock.now_s += 2.0
    progress.draw(state(240, 200, "kill", "1-worker-kill on worker-2"))
    yield "elsewhere every draw is a line without control characters", stream.getvalue()
    for second in range(3, 31):
        clock.now_s = 100.0 + second
        progress.draw(state(1_000 if second >= 10 else 0, 10 * second))
    yield "rates forget what is older than the window", stream.getvalue().splitlines()[-1]


def on_a_terminal() -> Told:
    for terminal in (True, False):
        progress, _, stream = shown(terminal, columns=lambda: 40)
        progress.draw(state(0, 0))
        progress.draw(state(0, 0))
        progress.say("hello")
        yield f"{terminal}: one line redrawn and cut to its width, with which others do not collide", stream.getvalue()


def test_what_is_shown() -> None:
    tells("chaos/progress.txt", phase_rates_backlog_workers_and_the_fault_in_force, on_a_terminal)


@pytest.mark.parametrize(("terminal", "period_s"), [(True, TERMINAL_PERIOD_S), (False, PLAIN_PERIOD_S)])
def test_a_draw_is_due_after_the_period_or_in_a_new_phase(terminal: bool, period_s: float) -> None:
    progress, clock, _ = shown(terminal)
    assert progress.due("lead-in")
    progress.draw(state(0, 0))
    assert not progress.due("lead-in") and progress.due("kill")
    clock.now_s += period_s
    assert progress.due("lead-in")
