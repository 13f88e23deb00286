"""The command `check` on real processes: each kind of worker is started once, a job runs, and effects are counted once."""

import time
from pathlib import Path

import pytest

from chaos.service import trial
from chaos.service.file import read
from tests.chaos.service.service import asked, written

#: Interpreters start, the modules are imported twice, and all processes are stopped.
BESIDE_S = 200

WORKER = "ironclaim worker small:queue --concurrency"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]


def test_each_kind_of_worker_is_started_once(tmp_path: Path) -> None:
    kinds = read(written(tmp_path, workers=f"['{WORKER} 1', '{WORKER} 2', '{WORKER} 1', '{WORKER} 3']"))
    assert trial.kinds_of(kinds) == ["worker-1", "worker-2", "worker-4"]


def test_a_good_service_is_ready_and_its_effects_are_counted(tmp_path: Path) -> None:
    done = asked("check", written(tmp_path, workers=f"['{WORKER} 2', '{WORKER} 3']"))
    assert done.returncode == 0, done.stdout + done.stderr
    *_, ran, kinds, effects, last = done.stdout.splitlines()
    assert ran.startswith("one job of queue small was sent and ran: its handler returned")
    assert kinds == "each of 2 kinds of worker asked for work" and last == "check: ready"
    took, of = effects.removeprefix("effects small:effects: ").split(" finished")[0].split(" of ")
    assert int(took) == int(of) > 0


def test_a_second_kind_that_is_no_worker_is_named_in_time(tmp_path: Path) -> None:
    began_s = time.monotonic()
    done = asked("check", written(tmp_path, workers=f"['{WORKER} 2', 'sh -c \"echo what now; exec sleep 999\"']"))
    assert done.returncode == 2 and time.monotonic() - began_s < trial.TRIAL_TIMEOUT_S + BESIDE_S
    said = done.stderr.removeprefix("chaos: check: ")
    assert said.startswith("worker-2 recorded nothing: does its command work for the queue") and done.stderr.count("\n") == 1
    assert said.endswith(f"within {trial.TRIAL_TIMEOUT_S:.0f} s; the log of worker-2 says: what now\n")


#: Before the first statement of the handler `work`.
WORK = "time.sleep(ms / 1000)"


def changed(file: Path, text: str, by: str) -> Path:
    """The file, whose module says something else."""
    module = file.parent / "small.py"
    assert text in module.read_text()
    module.write_text(module.read_text().replace(text, by))
    return file


@pytest.mark.parametrize("options", ["", " --log-json"])
def test_a_service_none_of_whose_jobs_finish_is_not_ready_and_its_error_has_no_secrets(tmp_path: Path, options: str) -> None:
    file = written(tmp_path, workers=f"['{WORKER} 2{options}']")
    began_s = time.monotonic()
    done = asked("check", changed(file, WORK, "raise OSError('no  disk\\n' + os.environ['SMALL_DB'])"))
    assert done.returncode == 2 and "ready" not in done.stdout and done.stderr.count("\n") == 1, done.stdout + done.stderr
    assert "jobs that were tried are not finished; the log of worker-1 says: job " in done.stderr
    few, of = done.stderr.partition(" jobs that")[0].rpartition(": ")[2].split(" of ")
    assert few == of and int(few) >= trial.TRIED_MAX
    assert "(work), attempt 1 of 3, failed: OSError: no disk" in done.stderr and "small.db" not in done.stderr
    assert time.monotonic() - began_s < trial.TRIAL_TIMEOUT_S + BESIDE_S


def test_handlers_that_fail_on_purpose_may_be_tried_first(tmp_path: Path) -> None:
    """More than are waited for have failed before the one that runs long returns."""
    done = asked("check", written(tmp_path, more="yield from ((fail, {}) for _ in range(9))", ms=1_500))
    assert done.returncode == 0, done.stdout + done.stderr
    *_, ran, others, _, last = done.stdout.splitlines()
    assert "its handler returned" in ran and last == "check: ready"
    assert "jobs that were tried are not finished; the log of worker-1 says: job " in others
    assert others.endswith("(fail), attempt 1 of 1, failed: RuntimeError: no; dead: no attempt is left")


def test_settings_of_the_shell_are_not_those_of_a_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "PREFIX", "QUEUE", "CONCURRENCY", "OBSERVER", "HISTORY"):
        monkeypatch.setenv(f"IRONCLAIM_{name}", "redis://production:6379/0")
    file = changed(
        written(tmp_path), 'queue = Queue("small")', 'queue = Queue("small", prefix=os.environ.get("IRONCLAIM_PREFIX", "jobs"))'
    )
    done = asked("check", file)
    assert done.returncode == 0 and done.stdout.endswith("check: ready\n"), done.stdout + done.stderr


SHAPE = "must return ids of jobs with how often each took effect, such as {'job-1': 1}"


NO_EFFECTS = [
    *(("return None", SHAPE), ("return [job for job, _ in each()]", SHAPE), ("return {job: 'once' for job, _ in each()}", SHAPE)),
    ("raise LookupError('no table ' + os.environ['SMALL_DB'])", "$SMALL_DB\n"),
    ("return {'other-' + job: times for job, times in each()}", "does it count by the ids of jobs"),
]


@pytest.mark.parametrize(("effects", "line"), NO_EFFECTS)
def test_effects_that_are_none_are_told_before_a_drill(tmp_path: Path, effects: str, line: str) -> None:
    done = asked("check", written(tmp_path, effects=effects))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stdout + done.stderr
    assert "effects small:effects: " in done.stderr and line in done.stderr


def test_names_without_effects_may_be_all_that_was_sent(tmp_path: Path) -> None:
    done = asked("check", written(tmp_path, effects="return {}", without_effects='["work"]'))
    assert done.returncode == 0 and "effects small:effects: 0 of " in done.stdout
