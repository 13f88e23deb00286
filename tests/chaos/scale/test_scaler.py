"""What the small autoscaler reads and decides, who sends how much, and when workers have followed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos import errors, plan
from chaos.scaling import DRAIN_MS, FALLEN, GREATEST, PRODUCERS, Look, ScaleCrew, ScaleDrill, Scaler, followed, numbers_of, read
from chaos.scenarios.scale import SLO, spec_of
from chaos.spec import RunSpec
from chaos.watch import Watch
from engine import Queue
from record.history import HistoryFile
from reports.slo_file import read as read_objectives


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScaleCrew:
    """A crew that notes what it would start, in `asked`."""
    manifest, watch = HistoryFile(tmp_path / "manifest.jsonl", proc="manifest", role="harness"), Watch(tmp_path)
    return ScaleCrew(RunSpec(id="scale", seed=5, rate_per_s=120), lambda name: "url", tmp_path, tmp_path, manifest, watch)


def test_it_reads_the_metrics_of_a_real_queue(ironclaim_url: str) -> None:
    with Queue("scaled", url=ironclaim_url) as queue:
        queue.enqueue("a", {})
        found = read(queue.metrics())
    assert (found["wanted_workers"], found["workers"], found["arrivals_per_second"]) == (1, 0, 0)
    assert found["oldest_waiting_seconds"] >= 0 and "worker_utilisation_ratio" not in found
    with pytest.raises(errors.HarnessError, match="ironclaim_wanted_workers: '<html>'"):
        read("<html>")


def test_it_goes_up_at_once_and_down_when_fewer_were_wanted_for_long() -> None:
    scaler = Scaler(stable_s=3)
    # The four count for three looks, and the three after them as well.
    wanted, there = [1, 4, 2, 2, 3, 2, 2, 2, 1, 1, 1], [1, 4, 4, 4, 3, 3, 3, 2, 2, 2, 1]
    assert [scaler.decide(now_s, count) for now_s, count in enumerate(wanted)] == there


@given(wanted=st.lists(st.integers(0, 50), min_size=1), stable_s=st.floats(0.5, 10))
def test_it_never_has_fewer_than_are_wanted_nor_more_than_were(wanted: list[int], stable_s: float) -> None:
    scaler = Scaler(stable_s)
    for now_s, count in enumerate(wanted):
        assert count <= scaler.decide(now_s, count) <= max(wanted)


def test_the_load_doubles_twice_and_falls(crew: ScaleCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[str]] = {}
    monkeypatch.setattr(crew, "_start", lambda name, role, command, environment: asked.update({name: command}))
    for name in PRODUCERS:
        crew.start_producer(name)
    rates = {name: int(command[command.index("--rate") + 1]) for name, command in asked.items()}
    assert [sum(rates[name] for name in names) for names in ScaleDrill.PHASES.values()] == [30, 60, 120, 30]
    assert len({command[command.index("--seed") + 1] for command in asked.values()}) == len(PRODUCERS), "no id comes twice"
    assert next(iter(PRODUCERS)) == plan.PRODUCER


def test_workers_are_started_and_the_newest_told_to_stop(crew: ScaleCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    class Started:
        role, pid, process, exit_expected = "worker", 0, None, False

        def __init__(self, name: str) -> None:
            self.name = name

    told: list[int] = []
    monkeypatch.setattr("chaos.scaling.send", lambda pid, number: told.append(number))
    monkeypatch.setattr(crew, "start_worker", lambda name: crew.children.update({name: Started(name)}))
    starting: set[str] = set()
    monkeypatch.setattr(crew, "has_begun", lambda name: name not in starting)
    for count, working, retired in (
        *((1, ["worker-1"], []), (3, ["worker-1", "worker-2", "worker-3"], []), (2, ["worker-1", "worker-2"], ["worker-3"])),
        *((3, ["worker-1", "worker-2", "worker-4"], ["worker-3"]), (0, [], ["worker-3", "worker-1", "worker-2", "worker-4"])),
    ):
        crew.scale_to(count)
        assert (crew.working(), crew.retired) == (working, retired)
    starting.add("worker-5")
    crew.scale_to(1)
    crew.scale_to(0)
    assert crew.working() == ["worker-5"], "it would die of the signal"
    assert len(told) == 4 and all(crew.children[name].exit_expected for name in crew.retired)


def test_workers_follow_when_more_come_and_some_go() -> None:
    def looks(first: int, *, most: int, after: tuple[int, ...]) -> list[Look]:
        risen = [("setup", first), ("doubled", first), (GREATEST, first), (GREATEST, most)]
        return [{"phase": phase, "there": count} for phase, count in (*risen, *((FALLEN, count) for count in after))]

    assert numbers_of(looks(1, most=4, after=(4, 3, 1))) == (1, 4, 1)
    assert followed(looks(1, most=4, after=(4, 3, 1))) and followed(looks(1, most=4, after=(4, 3, 4)))
    assert not followed(looks(1, most=1, after=(1,))) and not followed(looks(1, most=4, after=(4, 4)))
    assert not followed(looks(1, most=4, after=())) and not followed(looks(4, most=4, after=(1,))) and not followed([])
    assert (numbers_of([]), numbers_of(looks(2, most=3, after=()))) == ((0, 0, 0), (2, 3, 3))


def test_jobs_may_wait_for_as_long_as_the_metrics_let_a_backlog_be() -> None:
    objectives = {one.name: one.bound for one in read_objectives(SLO, channels=False)}
    assert objectives == {
        **{"latency.all.queue_delay.p99_ms": DRAIN_MS, "errors.lost": 0, "errors.doubled": 0, "errors.unfinished": 0.01}
    }
    assert spec_of(3).workers == 1
