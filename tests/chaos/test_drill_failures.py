"""Drills that go wrong: one clear line each, every fault healed, and no process left behind."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from chaos import drill as drill_module
from chaos.drill import Drill
from chaos.faults.base import process_states
from chaos.processes import Crew
from engine import Queue
from tests.chaos.drills import calm_drill, history, interrupt, make_drill, run, when
from tests.engine.helpers.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]


def test_an_interrupt_while_a_worker_is_frozen_heals_it_and_stops_everything(tmp_path: Path) -> None:
    drill, plan = make_drill(tmp_path, seed=1)
    assert plan.faults[0].name == "worker-freeze"
    run(drill, when(lambda: any(process_states(child.pid) == {"T"} for child in psutil.Process().children()), interrupt))
    assert drill.errors == ["interrupted by SIGINT"] and drill.loaded
    files = history(drill)
    assert {name for name, rows in files.items() if rows[-1]["kind"] != "close"} == set()
    stages = [row["stage"] for row in files["harness"] if row["kind"] == "fault"]
    # One that comes before the fault is on record leaves no row: the fault undoes itself (test_faults).
    assert stages == [] or (stages[0], stages[-1]) == ("inject", "heal")


def test_a_worker_that_dies_by_itself_ends_the_drill_and_is_recorded(tmp_path: Path) -> None:
    drill, _ = make_drill(tmp_path, seed=1)
    # Behind the harness's back.
    run(drill, when(lambda: drill.loaded, lambda: drill._crew.children["worker-3"].process.send_signal(signal.SIGKILL)))
    assert len(drill.errors) == 1
    assert drill.errors[0].startswith("unplanned exit of worker-3: killed by SIGKILL")
    (row,) = [row for row in history(drill)["harness"] if row["kind"] == "fault"]
    assert (row["name"], row["stage"], row["result"], row["target"]) == ("unplanned-exit", "witness", "ok", "worker-3")


def test_an_interrupt_and_a_death_while_everything_is_stopped_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drill = calm_drill(tmp_path)
    stop_all = drill_module.Crew.stop_all

    def stop_late(crew: Crew) -> list[str]:
        """Stop everything, once the signal is there and worker-2 is not any more."""
        crew.children["worker-2"].process.kill()
        crew.children["worker-2"].process.wait()
        wait_until(lambda: drill.interrupts._caught, "the interrupt")
        return stop_all(crew)

    monkeypatch.setattr(drill_module.Crew, "stop_all", stop_late)
    # After the last tick, when a worker has gone by itself.
    run(drill, when(lambda: drill._phase == "end", interrupt))
    death, interrupted = drill.errors
    assert death.startswith("unplanned exit of worker-2: killed by SIGKILL")
    assert interrupted == "interrupted by SIGINT"


def test_a_queue_that_does_not_drain_is_an_error_and_quiet_at_the_end(tmp_path: Path) -> None:
    drill = calm_drill(tmp_path)
    work_ms = 2 * drill.spec.liveness_ms + 2_000

    def burden() -> None:
        """A job that is not due for an hour, and one that runs until after the drill has given up."""
        with Queue(drill.spec.queue, url=drill._servers.url) as queue:
            payload = {"index": 0, "work_ms": work_ms, "fail_first": 0, "pad": ""}
            queue.enqueue("email", payload, id="due-later", delay_ms=3_600_000)
            queue.enqueue("email", payload, id="long")

    run(drill, when(lambda: drill._phase == "drain", burden))
    assert drill.errors == [f"the queue was not drained {2 * drill.spec.liveness_ms} ms after the last heal"]
    files = history(drill)
    finals = [row for row in files["harness"] if row["kind"] == "final"]
    listed = {(row["name"], row["state"]): [item["job"] for item in row["items"]] for row in finals}
    assert (listed["give-up", "delayed"], listed["give-up", "active"]) == (["due-later"], ["long"])
    assert (listed["end", "delayed"], listed["end", "active"]) == (["due-later"], [])
    assert "long" in listed["end", "done"]
    end_ns = min(row["t_ns"] for row in finals if row["name"] == "end")
    assert max(rows[-1]["t_ns"] for name, rows in files.items() if name.startswith("worker")) < end_ns


def test_an_interrupt_while_the_network_is_down_heals_it_and_stops_everything(tmp_path: Path) -> None:
    drill, _ = make_drill(tmp_path, seed=1, kinds=("net-down",))
    run(drill, when(lambda: drill._phase == "net-down", interrupt))
    # Without the heal, children that cannot reach their server would not have stopped well.
    assert drill.errors == ["interrupted by SIGINT"]
    files = history(drill)
    assert {name for name, rows in files.items() if rows[-1]["kind"] != "close"} == set()
    stages = [(row["stage"], row["result"]) for row in files["harness"] if row["kind"] == "fault"]
    assert stages == [("inject", "ok"), ("heal", "ok")]


def kill_proxies(drill: Drill) -> None:
    assert drill._network
    os.kill(drill._network.pid, signal.SIGKILL)


@pytest.mark.parametrize("phase", ["lead-in", "net-down"])
def test_a_proxy_that_dies_ends_the_drill_with_one_line(phase: str, tmp_path: Path) -> None:
    """Also while a fault is in force."""
    drill, _ = make_drill(tmp_path, seed=1, kinds=("net-down",))
    run(drill, when(lambda: drill.loaded and drill._phase == phase, lambda: kill_proxies(drill)))
    assert drill.errors == [f"the Toxiproxy server exited in mid-run with code -9; see {drill.folder.logs / 'toxiproxy.log'}"]
    assert drill.loaded


def test_a_network_fault_without_a_proxy_program_is_one_line(tmp_path: Path) -> None:
    drill, _ = make_drill(tmp_path, seed=1, kinds=("net-down",))
    drill.toxiproxy = None
    run(drill)
    assert drill.errors == ["the plan has faults of the network, and no Toxiproxy server was named"]
    assert not drill.loaded
