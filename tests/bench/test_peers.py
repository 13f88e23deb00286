"""`python -m bench peers`: what is computed from hand-written values, and the adapter of this engine against a real server."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import engine
from bench.micro.place import client, pinned_server
from bench.peers import environments, redelivery, table
from bench.peers.__main__ import main
from bench.peers.libraries import LIBRARIES, Library
from bench.peers.measures import middle_rate
from bench.peers.processes import ENDED, ENQUEUED, STARTED, STARTED_AGAIN, Bench, PeerFailed, wait_for
from tests.bench.real_parts import TWO_CORES
from tests.golden import Told, tells

OURS = replace(LIBRARIES[0], runtime="checkout")
JOBS = 300


FOUND = {
    "ironclaim": {"drain": [200.0, 100.0, 300.0], "pickup_p50_ms": [2.0], "idle_commands": [0.0], "bulk": [5.0]},
    "bullmq": {"drain": [100.0], "pickup_p50_ms": [1.0], "idle_commands": [4.0]},
    # Faster in all columns, and a job of a killed worker is lost: no rival.
    "huey": {"drain": [1000.0], "pickup_p50_ms": [0.1], "idle_commands": [1.0], "bulk": [50.0]},
}


def ours_is_set_against_the_best_that_redelivers() -> Told:
    """Where less is better: theirs over ours."""
    ratios = {one.key: table.ratio_to_best(FOUND, one) for one in (*table.RATES, *table.WAITS)}
    yield "ratios", {key: ratios[key] for key in ("drain", "pickup_p50_ms", "idle_commands", "bulk")}
    yield "last line", table.last_line(FOUND)


def the_fastest_drain_is_first() -> Told:
    """And what loses jobs is marked."""
    run = {"date": "2026-01-01", "machine": "a machine", "repeat": 3, "redelivery_wait_s": 120.0}
    again = {"ironclaim": 8.04, "huey": None}
    page = table.markdown({"run": run, "found": FOUND, "redelivery_s": again, "missing": {"asynq": "needs Go"}})
    yield "rows", [line for line in page.splitlines() if line.startswith(("| ", "- "))]


def test_what_was_found_is_told() -> None:
    tells("bench/peers.txt", ours_is_set_against_the_best_that_redelivers, the_fastest_drain_is_first)


def test_the_rate_is_that_of_the_middle() -> None:
    """The first third is slower, as when the second worker has not started yet, and the last jobs trickle in."""
    slow = [10_000_000 * number for number in range(30)]
    steady = [slow[-1] + 1_000_000 * number for number in range(1, 66)]
    trickle = [steady[-1] + 100_000_000 * number for number in range(1, 6)]
    assert (middle_rate(slow + steady + trickle), middle_rate([1, 2])) == (pytest.approx(1000, rel=0.02), 0.0)


BAD_ARGUMENTS = [
    (("--repeat", "0"), "--repeat is 0: it must be a whole number from 1 to 20"),
    (("--redelivery-s", "3601"), "--redelivery-s is 3601.0: it must be a number from 0 to 3600"),
    (("--only", "sidekiq"), "invalid choice: 'sidekiq'"),
    (("--only", "celeri"), "invalid choice: 'celeri', perhaps celery"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_ARGUMENTS)
def test_bad_arguments_are_named(arguments: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and message in capsys.readouterr().err


def test_a_library_that_this_machine_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.environments.FOLDER", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for runtime, why in (("python", "needs Python 3.99"), ("node", "needs Node and npm"), ("go", "needs Go")):
        adapter = {"python": "rq_adapter.py", "node": "bull.js", "go": "asynq"}[runtime]
        library = Library("none", runtime, adapter, (), True, frozenset(), 1, python_min=(3, 99))
        with pytest.raises(environments.NotAvailable, match=why):
            environments.command_of(library)


def test_every_library_has_its_adapter() -> None:
    adapters = {path.name for path in (Path(table.__file__).parent / "adapters").iterdir()}
    shared = {"recording.py", "recording.js", "order.py", "measured.py", "drilled.py", "drilled.js", "__pycache__"}
    assert {library.adapter for library in LIBRARIES} == adapters - shared
    assert len({library.name for library in LIBRARIES}) == len(LIBRARIES)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with pinned_server() as server:
        bench = Bench(client(server), server.port, tmp_path)
        bench.install(OURS, environments.command_of(OURS))
        yield bench


def waiting(bench: Bench) -> int:
    port = bench.server.connection_pool.connection_kwargs["port"]
    with engine.Queue("peers-ironclaim", url=f"redis://127.0.0.1:{port}") as queue:
        return queue.counts().waiting


@TWO_CORES
@pytest.mark.parametrize("way", ["paced", *(pytest.param(way, marks=pytest.mark.slow) for way in ("one", "in_flight", "bulk"))])
def test_a_producer_enqueues_each_job_once_and_a_worker_records_its_run(bench: Bench, way: str) -> None:
    produced = bench.records(OURS, JOBS)
    run = bench.produce(OURS, produced, way=way, in_flight=50, rate=1000, warm_up=0)
    assert run["seconds"] > 0 and run["cpu_s"] > 0 and waiting(bench) == JOBS
    enqueued = produced.times(ENQUEUED)
    assert produced.count(ENQUEUED) == (0 if way == "bulk" else JOBS)
    if way == "paced":
        # By the whole time and not from the first job on: on a busy machine that one may be the only one that is late.
        assert run["seconds"] >= (JOBS - 1) / 1000, "not faster than the rate"
    records = bench.records(OURS, JOBS)
    with bench.worker(OURS, records, pinned=True) as worker:
        assert wait_for(lambda: records.count(ENDED) == JOBS, 120, [worker])
        assert wait_for(lambda: waiting(bench) == 0, 120, [worker])
    assert records.count(STARTED_AGAIN) == 0
    started, ended = records.times(STARTED), records.times(ENDED)
    assert all(enqueued[number] <= started[number] <= ended[number] for number in range(JOBS))
    assert bench.own_cpu_s() > run["cpu_s"]


@TWO_CORES
def test_an_adapter_that_fails_is_named(bench: Bench) -> None:
    broken = Library("broken", "checkout", "recording.py", (), True, frozenset({"one"}), 1)
    bench.install(broken, environments.command_of(broken))
    with pytest.raises(PeerFailed, match="broken: the producer did not end well"):
        bench.produce(broken, bench.records(broken, 1), way="one")
    with (
        pytest.raises(PeerFailed, match="broken: a worker ended with 0"),
        bench.worker(broken, bench.records(broken, 1), pinned=True) as worker,
    ):
        wait_for(lambda: False, 120, [worker])


@TWO_CORES
@pytest.mark.slow
def test_a_job_of_a_killed_worker_runs_again_and_the_time_is_taken(bench: Bench) -> None:
    found = redelivery.redelivery_s(bench, [OURS], 30)
    assert found["ironclaim"] is not None
    assert 0 < found["ironclaim"] <= 11, "the bound of the README"
