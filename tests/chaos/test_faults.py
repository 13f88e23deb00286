"""Faults on real processes: the witness sees the effect, and it must fail when the fault did nothing."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from chaos import errors, mutants, plan, spec
from chaos.faults import base, kills, leases
from chaos.faults.base import Scene, Seen, process_states
from chaos.faults.kills import WorkerKill
from chaos.faults.leases import WorkerFreeze
from chaos.processes import Child, Crew, send
from chaos.watch import Token, Watch
from engine.testing import start_guarded
from record.history import HistoryFile
from tests.chaos.histories import WorkerHistory, carried_out, token, waiting

A, B, C = token("a", 10), token("b", 11), token("c", 12)
OTHERS = [token(job, 20, "2") for job in "abc"]

KILL = plan.PlannedFault("1-worker-kill", "worker-kill", "worker-1", 0, "worker-3")
FREEZE = plan.PlannedFault("2-worker-freeze", "worker-freeze", "worker-1", 0)

F = TypeVar("F", WorkerKill, WorkerFreeze)
MakeStage = Callable[..., "Stage"]


def sleeper(name: str, logs: Path) -> Child:
    """A process that does nothing, for longer than any test."""
    process = start_guarded([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
    return Child(name, "worker", process, logs / f"{name}.log")


class StubCrew(Crew):
    """Starts sleepers in place of workers; a replacement claims at once."""

    def start_worker(self, name: str) -> Child:
        self.watch.follow(name)
        self.children[name] = sleeper(name, self.logs)
        WorkerHistory(self.history, name).claim(token("z", 99, "3"))
        return self.children[name]


@dataclass
class Stage:
    """A victim with two handlers running and one job prefetched, another worker, and the scene around them."""

    scene: Scene
    victim: Child
    worker: WorkerHistory
    other: WorkerHistory

    def injected(self, kind: type[F]) -> tuple[F, Seen]:
        """A fault that has struck, and what its injection saw."""
        fault = kind(self.scene, KILL if kind is WorkerKill else FREEZE)
        return fault, fault.inject()

    def others_take(self, *tokens: Token) -> None:
        """The other worker claims these jobs and starts them."""
        self.other.claim(*tokens)
        self.other.start(*tokens)


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    manifest = HistoryFile(tmp_path / "manifest.jsonl", proc="manifest", role="harness")
    watch = Watch(tmp_path)
    crew = StubCrew(spec.RunSpec(id="test", seed=1), lambda name: "", tmp_path, tmp_path, manifest, watch)

    def make(kill: Callable[[int, int], None] = send) -> Stage:
        for name in ("worker-1", "worker-2"):
            watch.follow(name)
        crew.children["worker-1"] = sleeper("worker-1", tmp_path)
        worker, other = WorkerHistory(tmp_path, "worker-1"), WorkerHistory(tmp_path, "worker-2")
        worker.claim(A, B, C)
        worker.start(A, B)
        return Stage(Scene(crew, watch, waiting(watch.poll), kill, 1_000, 3_000), crew.children["worker-1"], worker, other)

    yield make
    for child in crew.children.values():
        child.process.kill()
        child.process.wait()


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """One whose signals are sent."""
    return make_stage()


@pytest.fixture(autouse=True)
def content_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults do not wait long for more handlers than the stage has."""
    monkeypatch.setattr(base, "aim", partial(base.aim, timeout_s=0.05))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for what never comes are short."""
    monkeypatch.setattr(kills, "OVERTIME_S", -3.0)
    monkeypatch.setattr(kills, "REPLACEMENT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(leases, "OVERTIME_S", -0.9)
    monkeypatch.setattr(leases, "LATE_TIMEOUT_S", 0.1)


@pytest.fixture
def harmless(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals do nothing: waits for their effect, which else comes however late, are short as well."""
    monkeypatch.setattr(base, "REAP_TIMEOUT_S", 0.1)
    for module in (base, leases):
        monkeypatch.setattr(module, "STATE_TIMEOUT_S", 0.1)


def test_kill_is_witnessed_by_waitpid_with_the_jobs_in_hand(stage: Stage) -> None:
    fault, injected = stage.injected(WorkerKill)
    seen = fault.witness()
    assert stage.victim.process.returncode == -signal.SIGKILL
    assert injected.ok and seen.ok and set(seen.tokens) == {A, B, C} and injected.t_ns <= seen.t_ns
    assert "waitpid returned -9; 2 handlers cut off, 3 jobs in hand" in seen.detail


@pytest.mark.parametrize("taken", [3, 1])
def test_the_replacement_starts_after_its_jobs_or_the_bound(stage: Stage, taken: int, request: pytest.FixtureRequest) -> None:
    if taken < 3:
        request.getfixturevalue("impatient")
    fault, _ = stage.injected(WorkerKill)
    fault.witness()
    stage.others_take(*OTHERS[:taken])
    assert f"{taken} of 3 jobs in hand ran elsewhere" in fault.heal().detail
    assert taken < 3 or fault.witness_healed().ok
    assert "worker-3" in stage.scene.crew.children


@pytest.mark.usefixtures("harmless")
def test_a_kill_that_did_nothing_has_no_witness(make_stage: MakeStage) -> None:
    stage = make_stage(mutants.pretend)
    fault, _ = stage.injected(WorkerKill)
    assert not fault.witness().ok and stage.victim.alive() and not stage.victim.exit_expected
    fault.heal()
    assert "worker-3" not in stage.scene.crew.children


@pytest.mark.usefixtures("impatient")
def test_a_kill_between_two_jobs_has_no_witness(stage: Stage) -> None:
    stage.worker.stop(A, B)
    fault, _ = stage.injected(WorkerKill)
    assert not fault.witness().ok and stage.victim.process.returncode == -signal.SIGKILL


def test_freeze_is_witnessed_by_the_kernel_and_by_another_claim(stage: Stage) -> None:
    fault, _ = stage.injected(WorkerFreeze)
    assert process_states(stage.victim.pid) == {"T"}
    stage.other.claim(*OTHERS)
    seen = fault.witness()
    assert seen.ok and set(seen.tokens) == {A, B}
    fault.heal()
    for one in (A, B):
        stage.worker.send("finish", one)
        stage.worker.answer("finish", one, result="stale", kind="fail")
    healed = fault.witness_healed()
    assert healed.ok and "finish stale, finish stale" in healed.detail
    assert process_states(stage.victim.pid).isdisjoint({"T"})


@pytest.mark.usefixtures("harmless")
def test_a_freeze_that_did_nothing_has_no_witness(make_stage: MakeStage) -> None:
    stage = make_stage(mutants.pretend)
    stage.other.claim(*OTHERS)
    fault, _ = stage.injected(WorkerFreeze)
    seen = fault.witness()
    assert not seen.ok and "not stopped" in seen.detail


@pytest.mark.usefixtures("impatient")
def test_a_freeze_that_nobody_noticed_has_no_witness(stage: Stage) -> None:
    stage.other.claim(OTHERS[2])
    fault, _ = stage.injected(WorkerFreeze)
    seen = fault.witness()
    assert not seen.ok and "others claimed 0 of its 2 running jobs" in seen.detail


@pytest.mark.usefixtures("impatient")
def test_a_zombie_whose_ends_are_not_answered_is_not_healed(stage: Stage) -> None:
    fault, _ = stage.injected(WorkerFreeze)
    stage.other.claim(*OTHERS)
    assert fault.witness().ok
    fault.heal()
    stage.worker.send("finish", A)
    assert not fault.witness_healed().ok


def test_a_freeze_that_is_interrupted_while_it_is_injected_is_undone(stage: Stage) -> None:
    def interrupted(condition: Callable[[], bool], *, timeout_s: float, poll_s: float = 0.005) -> bool:
        """Ctrl-C as soon as the victim stands still."""
        met = stage.scene.wait(condition, timeout_s=timeout_s, poll_s=poll_s)
        if process_states(stage.victim.pid) == {"T"}:
            raise errors.HarnessError("interrupted by SIGINT")
        return met

    with pytest.raises(errors.HarnessError, match="interrupted"):
        WorkerFreeze(replace(stage.scene, wait=interrupted), FREEZE).inject()
    assert stage.scene.wait(lambda: process_states(stage.victim.pid).isdisjoint({"T"}), timeout_s=60)


def test_a_freeze_that_caught_no_handler_is_undone_and_tried_again(make_stage: MakeStage) -> None:
    late = token("d", 13)
    stops: list[int] = []

    def kill(pid: int, number: int) -> None:
        """The first stop comes just after the handlers have ended; a new handler runs after it."""
        if number == signal.SIGSTOP and not stops:
            stage.worker.stop(A, B)
        send(pid, number)
        if number == signal.SIGSTOP:
            stops.append(pid)
        else:
            stage.worker.start(late)

    stage = make_stage(kill)
    _, injected = stage.injected(WorkerFreeze)
    assert len(stops) == 2 and "attempt 2, 1 handlers running" in injected.detail
    assert process_states(stage.victim.pid) == {"T"}


def test_a_freeze_after_which_no_other_ends_is_tried_again(make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "STALL_S", 0.3)
    stops: list[int] = []

    def kill(pid: int, number: int) -> None:
        """What the frozen one holds is what the handler of the other waits for."""
        send(pid, number)
        if number == signal.SIGSTOP:
            stops.append(pid)
        elif len(stops) == 1:
            stage.other.stop(waits)

    waits, stage = token("w", 21), make_stage(kill)
    stage.others_take(waits)
    _, injected = stage.injected(WorkerFreeze)
    assert len(stops) == 2 and "attempt 2, 2 handlers running" in injected.detail
    assert process_states(stage.victim.pid) == {"T"}


def test_long_handlers_of_others_are_no_reason_to_stop_again(make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "STALL_S", 0.1)
    stage = make_stage()
    stage.others_take(token("long", 22))
    _, injected = stage.injected(WorkerFreeze)
    assert f"attempt {leases.STALLS_MAX + 1}, 2 handlers running" in injected.detail
    assert process_states(stage.victim.pid) == {"T"}


def test_a_frozen_worker_is_continued_also_when_the_witness_raises(stage: Stage, tmp_path: Path) -> None:
    class Broken(WorkerFreeze):
        def witness(self) -> Seen:
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        carried_out(Broken(stage.scene, FREEZE), FREEZE, tmp_path / "harness.jsonl")
    assert stage.scene.wait(lambda: "T" not in process_states(stage.victim.pid), timeout_s=60)


def test_four_rows_tell_the_story_of_a_fault_and_the_phases_start_at_its_instants(stage: Stage, tmp_path: Path) -> None:
    stage.others_take(*OTHERS)
    rows, phases, healed_ns = carried_out(WorkerKill(stage.scene, KILL), KILL, tmp_path / "harness.jsonl")
    assert [(row["stage"], row["result"]) for row in rows] == [(stage, "ok") for stage in ("inject", "witness", "heal", "healed")]
    assert {(row["fault"], row["name"], row["target"]) for row in rows} == {("1-worker-kill", "worker-kill", "worker-1")}
    assert rows[1]["items"] == base.items([A, B, C])
    assert phases == [("kill", rows[0]["t_ns"]), ("recover-kill", rows[2]["t_ns"])]
    assert rows[2]["t_ns"] == healed_ns


def test_a_freeze_that_nobody_notices_names_the_workers_that_wait_as_for_a_lock(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    for name in ("worker-1", "worker-2", "worker-3", "worker-4"):
        watch.follow(name)
    frozen_ns = 100_000_000_000
    watch.view("worker-1").running[token("frozen", 1)] = frozen_ns - 5
    watch.view("worker-2").running[token("waits", 2)] = frozen_ns + leases.SOON_NS // 2
    watch.view("worker-3").running.update({token("waits-too", 3): frozen_ns - 5, token("new", 4): frozen_ns + 2 * leases.SOON_NS})
    scene: Any = SimpleNamespace(watch=watch)
    fault = WorkerFreeze(scene, plan.PlannedFault("1-worker-freeze", "worker-freeze", "worker-1", 0))
    fault._stopped_ns = frozen_ns  # pyright: ignore[reportPrivateUsage]
    assert fault._waiting() == "worker-2"  # pyright: ignore[reportPrivateUsage]
    watch.close()


def test_processes_that_ask_one_after_the_other_are_all_seen_to_be_silent() -> None:
    """Between two attempts at a call none is open: at no instant do all of them ask."""
    since_ns = time.monotonic_ns() - 1_000_000_000
    views = {name: SimpleNamespace(unanswered={}, answered=SimpleNamespace(sent_ns=0)) for name in ("a", "b", "idle", "answered")}
    asks = iter(["a", "b", "answered", "b", "a"] * 9)

    def poll() -> None:
        asking = next(asks, "")
        for name, view in views.items():
            view.unanswered = {"7": ("claim", since_ns + 1)} if name == asking else {}
        views["answered"].answered.sent_ns = since_ns + 2

    watch: Any = SimpleNamespace(poll=poll, view=views.__getitem__)
    crew: Any = SimpleNamespace(children={})
    scene = Scene(crew, watch, lambda condition, **_: any(condition() for _ in range(9)), send, 1_000, 1_000)
    assert scene.silent_since(since_ns, [*views], 1.0) == ["a", "b"]
    # What was on its way when the fault began is no sign yet.
    assert scene.silent_since(time.monotonic_ns() + 60_000_000_000, ["a"], 1.0) == []
