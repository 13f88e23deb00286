"""The processes of a service: what they are told, who is started anew, and whose end is an error of the drill."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos import errors, plan
from chaos.service.crew import STILLBORN_MAX, ServiceCrew
from chaos.service.file import read
from record.history import load_file
from tests.chaos.service.service import crew_of
from tests.engine.helpers.waiting import wait_until

SLEEPS = "sleep 60"

Make = Callable[..., ServiceCrew]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes the crew of a file with these workers; its processes are gone afterwards."""
    made: list[ServiceCrew] = []

    def crew(*workers: str, more: str = "") -> ServiceCrew:
        file = tmp_path / "chaos.toml"
        listed = ", ".join(f"'''{words}'''" for words in workers)
        file.write_text(f'queue = "shop:queue"\nload = "shop:load"\nrate = 1\nworkers = [{listed}]\n{more}')
        made.append(crew_of(tmp_path, read(file)))
        return made[-1]

    yield crew
    for one in made:
        one.stop_all(5.0)
        one.watch.close()
        one.manifest.close()


def worked(crew: ServiceCrew, name: str) -> None:
    """The process has asked for work before."""
    crew.watch.view(name).completed["claim"] = 1


def test_a_process_is_told_where_to_record_and_which_server(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IRONCLAIM_URL", "IRONCLAIM_CONCURRENCY", "IRONCLAIM_HISTORY", "IRONCLAIM_REDIS_SERVER"):
        monkeypatch.setenv(name, "of-the-shell")
    crew = make("sh -c 'env; pwd; echo $0 {name}' {run}", more='[environment]\nSHOP_DB = "{run}/{name}.db"\n')
    child = crew.start_worker("worker-2")
    child.process.wait(120)
    said = child.log.read_text().splitlines()
    told: dict[str, str] = {}
    for line in said:
        name, _, value = line.partition("=")
        told[name] = value
    assert told["IRONCLAIM_OBSERVER"] == "record.environment:observer"
    assert told["IRONCLAIM_HISTORY"] == str(tmp_path / "history" / "worker-2.jsonl")
    # What is the shell's is about other servers, or about the harness itself.
    assert {name for name, value in told.items() if value == "of-the-shell"} == {"IRONCLAIM_REDIS_SERVER"}
    assert (told["IRONCLAIM_HISTORY_URL"], told["IRONCLAIM_HISTORY_QUEUE"]) == ("redis://worker-2:1", "shop")
    assert told["SHOP_DB"] == f"{tmp_path}/worker-2.db" and told.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
    assert said[-2:] == [str(tmp_path), f"{tmp_path} worker-2"]
    announced = [(row["role"], row["name"], row["file"]) for row in load_file(tmp_path / "history" / "manifest.jsonl").rows[1:]]
    assert announced == [("worker", "worker-2", "worker-2.jsonl")]


def test_a_worker_that_ends_by_itself_is_started_anew_under_another_name(make: Make) -> None:
    crew = make(SLEEPS)
    crew.start_worker("worker-1")
    names = ["worker-1", "worker-1.1", "worker-1.2"]
    for name in names[:2]:
        worked(crew, name)
        crew.children[name].process.kill()
        wait_until(lambda name=name: not crew.children[name].alive(), "it ends")
        assert crew.unplanned_exits() == []
    assert list(crew.children) == names and crew.children["worker-1.2"].alive()
    assert crew.living("worker-1") == "worker-1.2" and crew.living("worker-3") == "worker-3"
    assert [(one["name"], one["how"]) for one in crew.ended] == [(name, f"{name}: killed by SIGKILL") for name in names[:2]]


def test_a_worker_that_never_worked_is_a_broken_command(make: Make) -> None:
    crew = make("sh -c 'echo no such module; exit 3'")
    crew.start_worker("worker-1").process.wait(120)
    (gone,) = crew.unplanned_exits()
    assert gone.ending() == "worker-1: exit code 3 (no such module)" and crew.ended == []


def test_one_that_worked_is_started_anew_only_so_often_where_it_does_not_work_any_more(make: Make) -> None:
    crew = make("false")
    crew.start_worker("worker-1")
    worked(crew, "worker-1")
    rounds = 0
    while not (gone := crew.unplanned_exits()):
        wait_until(lambda: not [child for child in crew.children.values() if child.alive()], "it ends")
        rounds += 1
        assert rounds < 50
    assert len(crew.children) == STILLBORN_MAX + 1 and gone[0].name == f"worker-1.{STILLBORN_MAX}"


def test_a_program_that_is_not_there_is_one_line(make: Make) -> None:
    with pytest.raises(errors.HarnessError, match="^worker-1: 'no-such-program' is no program on PATH$"):
        make("no-such-program --now").start_worker("worker-1")


def test_a_worker_that_will_not_stop_is_killed_and_no_error_of_the_drill_but_the_load_is(make: Make) -> None:
    crew = make("sh -c 'trap \"\" TERM; echo ready; while :; do sleep 0.1; done'")
    stubborn = crew.start_worker("worker-1")
    wait_until(lambda: "ready" in stubborn.log.read_text(), "it ignores SIGTERM")
    crew.watch.view("worker-1").opened = True
    assert crew.stop_all(1.0) == [] and stubborn.process.returncode == -9
    assert [one["name"] for one in crew.ended] == ["worker-1"]
    crew.start_producer(plan.PRODUCER).process.wait(120)
    assert [child.name for child in crew.unplanned_exits()] == [plan.PRODUCER], "there is no module shop"
