"""The drill of a rolling upgrade: who gets which engine, and what is done to workers of both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import errors
from chaos.processes import ROOT
from chaos.scenarios import upgrade
from chaos.scenarios.upgrade import FAULTS, NEW_ENGINE, OLD_ENGINE, UpgradeCrew, draw, number_of, unpack_engine
from chaos.spec import RunSpec
from chaos.watch import Watch
from record.history import HistoryFile

#: Stands for the command line of a worker: it says whose engine and whose harness it runs.
ENGINE = "import sys, bench; print(sys.argv, __file__, bench.__file__, flush=True)"


def test_the_plan_of_a_seed_hits_both_engines_alike() -> None:
    assert draw(7) == draw(7)
    orders = {tuple(planned.target for planned in draw(seed).faults) for seed in range(20)}
    assert len(orders) > 5
    for order in orders:
        assert sorted(order) == sorted(target for _, target, _ in FAULTS)
    for name in ("worker-kill", "worker-freeze"):
        assert {number_of(target) % 2 for kind, target, _ in FAULTS if kind == name} == {0, 1}
    # Who takes the place of a killed worker has the other engine.
    assert all((number_of(target) + number_of(other)) % 2 for _, target, other in FAULTS if other)


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[UpgradeCrew]:
    (history := tmp_path / "history").mkdir()
    manifest, watch = HistoryFile(history / "manifest.jsonl", proc="manifest", role="harness"), Watch(history)
    yield UpgradeCrew(
        RunSpec(id="upgrade", seed=5, rate_per_s=90), lambda name: "redis://nowhere", history, tmp_path, manifest, watch
    )
    watch.close()
    manifest.close()


def test_each_process_runs_its_own_engine_and_the_harness_of_the_checkout(crew: UpgradeCrew, tmp_path: Path) -> None:
    for name in (OLD_ENGINE, NEW_ENGINE):
        package = tmp_path / name / "engine"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(ENGINE)
    (tmp_path / OLD_ENGINE / "engine" / "recorder.py").touch()
    for name, engine in (("worker-1", OLD_ENGINE), ("worker-6", NEW_ENGINE)):
        child = crew.start_worker(name)
        assert child.process.wait(300) == 0
        told = child.log.read_text()
        assert str(tmp_path / engine / "engine" / "__main__.py") in told
        assert f"{ROOT / 'bench' / '__init__.py'}" in told and f"'{name}'" in told
        # An engine that has a recorder of its own is told by its option.
        assert (f"'--history', '{crew.history / name}.jsonl'" in told) is (engine == OLD_ENGINE)


def test_both_producers_share_the_rate_and_no_ids(crew: UpgradeCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(crew, "_start", lambda name, role, command, environment: asked.append(command))
    for name in ("producer-1", "producer-2"):
        crew.start_producer(name)
    seeds = [command[command.index("--seed") + 1] for command in asked]
    assert seeds[0] != seeds[1]
    assert [command[command.index("--rate") + 1] for command in asked] == ["45", "45"]


@pytest.mark.slow
def test_the_package_engine_alone_is_taken_of_a_wheel(tmp_path: Path) -> None:
    unpack_engine("HEAD", tmp_path / "engine-new")
    assert [path.name for path in (tmp_path / "engine-new").iterdir()] == ["engine"]
    assert (tmp_path / "engine-new" / "engine" / "lua" / "core" / "linked.json").exists()


def test_a_commit_whose_wheel_cannot_be_built_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.HarnessError, match="no-such-commit"):
        unpack_engine("no-such-commit", tmp_path / "engine-old")
    (tmp_path / "tree").mkdir()
    monkeypatch.setattr(upgrade, "unpacked", lambda commit, folder: tmp_path / "tree")
    with pytest.raises(errors.HarnessError, match="the wheel of v9 was not built: .*tree") as failed:
        unpack_engine("v9", tmp_path / "engine-old")
    assert "\n" not in str(failed.value)
