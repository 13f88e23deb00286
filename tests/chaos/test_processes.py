"""Children of a run: announced before they start, stopped politely, then by force, and missed when they go by themselves."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.faults.base import process_states
from chaos.processes import ROOT, Child, Crew, child_environment, consumer_command, last_line, producer_command, worker_command
from chaos.spec import RunSpec
from chaos.watch import Watch
from engine.testing import server, start_guarded
from record.history import HistoryFile, load_file
from reports.session import CONF_VARIABLE, MASTER_VARIABLE
from tests.engine.helpers.waiting import wait_until
from tests.golden import Told, tells

SPEC = RunSpec(id="test", seed=4, rate_per_s=77, lease_ms=1_500, sweep_ms=300)
URL = "redis://h:1/0"

#: A child that says when it is ready; `{on_term}` is what SIGTERM does.
CHILD = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, {on_term})
os.write(1, b"ready\\n")
# A signal that arrives just before a sleep begins is heard after it.
for _ in range(6_000):
    time.sleep(0.1)
"""
POLITE = CHILD.format(on_term="lambda *_: sys.exit(0)")
STUBBORN = CHILD.format(on_term="signal.SIG_IGN")
FAILING = CHILD.format(on_term="lambda *_: sys.exit('no luck')")


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    manifest = HistoryFile(tmp_path / "manifest.jsonl", proc="manifest", role="harness")
    crew = Crew(SPEC, lambda name: f"redis://{name}.test:1/0", tmp_path, tmp_path, manifest, Watch(tmp_path))
    yield crew
    for child in crew.children.values():
        child.process.kill()
        child.process.wait()


def start(crew: Crew, name: str, program: str, *, ready: bool = True) -> Child:
    """Start a Python program as a child, and wait until it says that it is ready."""
    log = crew.logs / f"{name}.log"
    with log.open("ab") as output:
        process = start_guarded([sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    crew.children[name] = Child(name, "worker", process, log)
    wait_until(lambda: not ready or last_line(log) == "ready", "the start of the child")
    return crew.children[name]


def test_a_polite_child_is_stopped_without_a_complaint(crew: Crew) -> None:
    child = start(crew, "worker-1", POLITE)
    assert (crew.stop(["worker-1"]), child.process.returncode, crew.unplanned_exits()) == ([], 0, [])


def test_a_frozen_child_is_continued_and_stopped(crew: Crew) -> None:
    child = start(crew, "worker-1", POLITE)
    child.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: process_states(child.pid) == {"T"}, "it stands still")
    assert (crew.stop(["worker-1"]), child.process.returncode) == ([], 0)


def test_a_stubborn_child_is_killed_and_that_is_said(crew: Crew) -> None:
    child = start(crew, "worker-1", STUBBORN)
    assert crew.stop(["worker-1"], grace_s=0.2) == ["worker-1: did not stop within 0.2 s of SIGTERM and was killed"]
    assert child.process.returncode == -signal.SIGKILL


def test_a_child_that_fails_while_it_stops_is_said_with_its_last_words(crew: Crew) -> None:
    start(crew, "worker-1", FAILING)
    assert crew.stop(["worker-1"]) == ["worker-1: exit code 1 (no luck)"]


def test_a_child_that_goes_by_itself_is_missed_once(crew: Crew) -> None:
    start(crew, "worker-1", "raise SystemExit('broken')", ready=False).process.wait(120)
    assert crew.alive("worker") == 0
    assert [gone.ending() for gone in crew.unplanned_exits()] == ["worker-1: exit code 1 (broken)"]
    assert crew.unplanned_exits() == []


def test_a_child_that_was_gone_before_the_stop_is_said(crew: Crew) -> None:
    start(crew, "worker-1", "raise SystemExit('broken')", ready=False).process.wait(120)
    assert crew.stop_all() == ["unplanned exit of worker-1: exit code 1 (broken)"]
    assert crew.stop_all() == [] and crew.unplanned_exits() == []


def test_a_child_whose_end_was_planned_or_said_before_is_not_said_again(crew: Crew) -> None:
    planned, missed = start(crew, "worker-1", POLITE), start(crew, "worker-2", POLITE)
    planned.exit_expected = True
    for child in (planned, missed):
        child.process.kill()
        child.process.wait()
    assert crew.unplanned_exits() == [missed] and crew.stop_all() == []


def test_a_killed_child_names_the_signal(crew: Crew) -> None:
    child = start(crew, "worker-1", POLITE)
    child.process.kill()
    child.process.wait()
    assert [gone.ending() for gone in crew.unplanned_exits()] == ["worker-1: killed by SIGKILL (ready)"]


def test_the_manifest_names_every_file_before_the_process_starts(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[list[tuple[str, str, str]]] = []
    urls: list[str] = []

    def start_nothing(command: list[str], **_: object) -> None:
        urls.extend(word for word in command if word.startswith("redis://"))
        rows = load_file(crew.history / "manifest.jsonl").rows
        announced.append([(row["role"], row["name"], row["file"]) for row in rows if row["kind"] == "process"])
        raise OSError("far enough")

    monkeypatch.setattr("chaos.processes.start_guarded", start_nothing)
    for begin in (lambda: crew.start_worker("worker-1"), lambda: crew.start_producer("producer-1")):
        with pytest.raises(OSError, match="far enough"):
            begin()
    worker = [("worker", "worker-1", "worker-1.jsonl"), ("sink", "worker-1", "worker-1.sink.jsonl")]
    assert announced == [worker, [*worker, ("producer", "producer-1", "producer-1.jsonl")]]
    assert urls == ["redis://worker-1.test:1/0", "redis://producer-1.test:1/0"], "each goes by way of its own proxy"


def commands() -> Told:
    """They carry the spec: its model where it is not the default, and the folder of scripts where it has one."""
    for spec, lua in ((SPEC, Path("lua")), (replace(SPEC, model="bull"), None)):
        worker, consumer = worker_command(spec, "worker-2", URL, lua), consumer_command(spec, URL, Path("c.jsonl"), lua)
        producer = producer_command(spec, URL, Path("p.jsonl"), lua)
        for who, words in {"worker": worker, "consumer": consumer, "producer": producer}.items():
            yield f"{who} on {spec.model}", " ".join(words[1:]).replace(f"{ROOT}/", "")


def test_commands_carry_the_spec() -> None:
    tells("chaos/commands.txt", commands)


def test_children_find_our_packages_from_any_folder(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", "import chaos, engine"], cwd=tmp_path, env=child_environment({}), timeout=300)
    assert done.returncode == 0


def test_children_inherit_no_settings_of_the_engine_but_what_the_harness_itself_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"IRONCLAIM_REDIS_SERVER", "IRONCLAIM_SPARK_MASTER", "IRONCLAIM_SPARK_CONF"}
    for name in (*kept, "IRONCLAIM_URL", "IRONCLAIM_DURABILITY"):
        monkeypatch.setenv(name, "of-the-shell")
    told = child_environment({"IRONCLAIM_SINK": "of-the-harness"})
    assert {name for name in told if name.startswith("IRONCLAIM_")} == kept | {"IRONCLAIM_SINK"}
    assert {MASTER_VARIABLE, CONF_VARIABLE, server.BINARY_VARIABLE} == kept
