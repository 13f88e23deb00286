"""Where Spark runs: masters and settings from options and the environment, and a cluster of several processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reports.bench.cost import descendants, judged
from reports.cluster import cluster
from reports.command import main
from reports.errors import JudgeError
from reports.session import by_place, chosen_conf, chosen_master
from tests.engine.helpers.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]

#: A cluster and two judges, each with a JVM of its own, on two cores that others use as well.
CLUSTER_S = 1_800


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`python -m reports cluster` and the first line that it prints."""
    proc = subprocess.Popen([sys.executable, "-m", "reports", "cluster", *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert proc.stdout
        yield proc, proc.stdout.readline().strip()
    finally:
        proc.kill()
        proc.wait()


def alive(pid: int) -> bool:
    """A zombie of another parent is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.timeout(CLUSTER_S)
def test_a_cluster_gives_the_same_verdict_byte_for_byte(tmp_path: Path, run: Path) -> None:
    """The same run in the same folder, so that nothing but the master differs."""
    kept = tmp_path / "kept"
    shutil.copytree(run, kept)
    here = judged(run, "local[2]")
    written = {name: (run / name).read_bytes() for name in ("verdict.json", "junit.xml")}
    shutil.rmtree(run)
    shutil.copytree(kept, run)
    with cluster(2, memory="1g") as address:
        there = judged(run, address)
    assert (here.code, there.code, {name: (run / name).read_bytes() for name in written}) == (0, 0, written)
    assert json.loads(written["verdict.json"])["verdict"] == "valid"
    # Those of the JVM too: Python alone needs two seconds and 200 MB.
    assert here.cpu_s > 5 and here.peak_mb > 300 and there.peak_mb > here.peak_mb


@pytest.mark.slow
@pytest.mark.timeout(CLUSTER_S)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_a_cluster_outlives_its_command(number: signal.Signals) -> None:
    with command("--workers", "1", "--memory", "512m") as (process, address):
        assert address.startswith("spark://127.0.0.1:")
        started = descendants(process.pid)
        assert len(started) >= 2
        os.kill(process.pid, number)
        assert process.wait(300) == (0 if number == signal.SIGTERM else -number)
        wait_until(lambda: not any(map(alive, started)), f"the end of {started}", 300)


@pytest.mark.slow
@pytest.mark.timeout(CLUSTER_S)
def test_a_cluster_whose_workers_are_too_small_is_one_clear_line(run: Path) -> None:
    with cluster(1, memory="512m") as address:
        command = [sys.executable, "-m", "reports", "judge", str(run), "--conf", "spark.executor.memory=2g"]
        environment = {**os.environ, "IRONCLAIM_SPARK_MASTER": address}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=CLUSTER_S)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "gave no executor within 60 s" in done.stdout and "spark.executor.memory, 2g" in done.stdout


def test_the_master_is_that_of_the_option_then_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRONCLAIM_SPARK_MASTER", raising=False)
    assert chosen_master(None) == "local[*]"
    monkeypatch.setenv("IRONCLAIM_SPARK_MASTER", "spark://judge:7077")
    assert (chosen_master(None), chosen_master("local[2]")) == ("spark://judge:7077", "local[2]")
    with pytest.raises(JudgeError, match="the Spark master is empty"):
        chosen_master(" ")


def test_settings_of_the_command_line_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "spark.executor.memory=1g 'spark.executor.extraJavaOptions=-Xss4m -Xmn64m'"
    monkeypatch.setenv("IRONCLAIM_SPARK_CONF", told)
    memory, java = "spark.executor.memory", "spark.executor.extraJavaOptions"
    assert chosen_conf([f"{memory}=4G"]) == {memory: "4G", java: "-Xss4m -Xmn64m"}
    monkeypatch.setenv("IRONCLAIM_SPARK_CONF", "'spark.executor.memory=1g")
    with pytest.raises(JudgeError, match="IRONCLAIM_SPARK_CONF cannot be split"):
        chosen_conf([])


WRONG_SETTINGS = [
    ("spark.executor.memory=4", "it must be a size with its unit"),
    ("spark.sql.ansi.enabled=false", "cannot be set: the judge needs its own"),
]


@pytest.mark.parametrize(("setting", "message"), WRONG_SETTINGS)
def test_a_wrong_setting_is_one_clear_line(setting: str, message: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", str(run), "--conf", setting]) == 2 and message in capsys.readouterr().err


def test_a_cluster_on_this_machine_stays_on_the_loopback_interface() -> None:
    for master in ("local[2]", "spark://127.0.0.1:7077", "spark://localhost:7077", "spark://[::1]:7077"):
        assert by_place(master)["spark.driver.bindAddress"] == "127.0.0.1"
    for master in ("spark://judge:7077", "k8s://https://judge:6443"):
        assert by_place(master) == {"spark.executorEnv.PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("arguments", [("--workers", "0"), ("--cores", "0"), ("--memory", "2")])
def test_a_cluster_out_of_bounds_is_one_clear_line(arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", *arguments]) == 2
    assert f"{arguments[0].removeprefix('--')} is" in capsys.readouterr().err
