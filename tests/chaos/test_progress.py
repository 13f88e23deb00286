"""Live progress: redrawn on a terminal, line by line elsewhere, with rates over a window."""

from io import StringIO

import pytest

from chaos.progress import CLEAR_LINE, PLAIN_PERIOD_S, TERMINAL_PERIOD_S, Progress, State


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


def test_a_line_shows_phase_rates_backlog_workers_and_the_fault_in_force() -> None:
    clock, stream = Clock(), Stream(terminal=False)
    progress = Progress(stream, clock_s=clock)
    progress.draw(state(0, 0))
    clock.now_s += 2.0
    progress.draw(state(240, 200, "kill", "1-worker-kill on worker-2"))
    shown = " ".join(stream.getvalue().splitlines()[1].split())
    assert shown.startswith("[ 2.0 s] kill offered 120.0/s finished 100.0/s backlog 3 (+2 delayed, 1 active) workers 2/3 ")
    assert shown.endswith(" fault: 1-worker-kill on worker-2")


def test_rates_forget_what_is_older_than_the_window() -> None:
    clock, stream = Clock(), Stream(terminal=False)
    progress = Progress(stream, clock_s=clock)
    for second in range(31):
        clock.now_s = 100.0 + second
        progress.draw(state(1_000 if second >= 10 else 0, 10 * second))
    assert "offered   0.0/s  finished  10.0/s" in stream.getvalue().splitlines()[-1]


@pytest.mark.parametrize(("terminal", "period_s"), [(True, TERMINAL_PERIOD_S), (False, PLAIN_PERIOD_S)])
def test_a_draw_is_due_after_the_period_or_in_a_new_phase(terminal: bool, period_s: float) -> None:
    clock = Clock()
    progress = Progress(Stream(terminal), clock_s=clock)
    assert progress.due("lead-in")
    progress.draw(state(0, 0))
    assert not progress.due("lead-in") and progress.due("kill")
    clock.now_s += period_s
    assert progress.due("lead-in")


def test_a_terminal_gets_one_line_redrawn_and_other_lines_do_not_collide_with_it() -> None:
    clock, stream = Clock(), Stream(terminal=True)
    progress = Progress(stream, clock_s=clock)
    progress.draw(state(0, 0))
    progress.draw(state(0, 0))
    assert "\n" not in stream.getvalue()
    progress.say("hello")
    assert stream.getvalue().endswith(f"{CLEAR_LINE}hello\n")


def test_a_line_is_cut_to_the_width_of_the_terminal_and_whole_elsewhere() -> None:
    for terminal, width in ((True, 39), (False, None)):
        stream = Stream(terminal)
        Progress(stream, clock_s=Clock(), columns=lambda: 40).draw(state(0, 0))
        line = stream.getvalue().removeprefix(CLEAR_LINE).rstrip("\n")
        assert len(line) == width if width else line.endswith("fault: none")


def test_elsewhere_every_draw_is_a_line_without_control_characters() -> None:
    stream = Stream(terminal=False)
    progress = Progress(stream, clock_s=Clock())
    progress.draw(state(0, 0))
    progress.say("hello")
    assert len(stream.getvalue().splitlines()) == 2 and "\x1b" not in stream.getvalue()
