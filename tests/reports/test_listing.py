"""The list of all runs: what it shows of each, what is wrong with a folder, and how fast it is."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.command import main
from reports.listing.command import document, entries, objectives
from tests.given import Output
from tests.golden import same
from tests.reports.conftest import steady
from tests.reports.repetitions import TYPICAL, judged

#: Jobs finished by each second: steady, none for a second, a server that forgot some, twice as many in the next.
FINISHED = (0, 50, 100, 100, 60, 160)


def sampled(run: Path) -> Path:
    """The run with samples of its queue: one row that says that it failed, and the last one cut off."""
    rows = [f'{{"t_ns":{second}000000000,"wall_ns":1,"srv_us":2,"done":9,"finished":{n}}}' for second, n in enumerate(FINISHED)]
    rows.insert(2, '{"t_ns":1500000000,"wall_ns":1,"error":"timeout"}')
    (run / "samples/queue.jsonl").write_text("\n".join(rows) + '\n{"t_ns":6000000000,"wall')
    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with a run of each kind, the newest being the last."""
    folder = tmp_path / "runs"
    sampled(judged(folder / "20260101-000000-bench-seed1", TYPICAL))
    judged(folder / "20260101-000500-bench-seed1", {**TYPICAL, "end_to_end.p99.all": 1_200.0}, started_utc="2026-01-01T00:05:00Z")
    worse = folder / "20260101-001000-bench-seed7-bull-no-reap"
    judged(worse, TYPICAL, "violated", seed=7, model="bull", mutant="no-reap", started_utc="2026-01-01T00:10:00Z")
    (worse / "report.html").write_text("")
    unjudged = judged(folder / "20260101-001500-soak-seed2", TYPICAL, scenario="soak", seed=2, started_utc="2026-01-01T00:15:00Z")
    (unjudged / "verdict.json").unlink()
    spec = json.loads((unjudged / "spec.json").read_text())
    (unjudged / "spec.json").write_text(json.dumps({key: value for key, value in spec.items() if key != "ended_utc"}))
    for name in ("tests", "bench-engine", "comparison"):
        (folder / name).mkdir()
    (folder / "latest").symlink_to("20260101-000000-bench-seed1")
    (folder / "index.html").write_text("old")
    return folder


BROKEN = [
    *(("spec.json", None, "spec.json is missing"), ("spec.json", '{"schema": 1, "se', "spec.json is not JSON: .*")),
    *(("spec.json", "[]", "spec.json is not a JSON object"), ("spec.json", "\x00\xff", "spec.json is not JSON: .*")),
    ("verdict.json", "", "verdict.json is not JSON: .*"),
    ("verdict.json", '{"verdict": "valid"}', r"verdict.json is not a verdict: KeyError\('measures'\)"),
    ("verdict.json", '{"verdict":7,"checks":[],"measures":{"recovery":[],"enqueued":1}}', "verdict.json has the verdict 7"),
    ("verdict.json", '{"verdict": "valid", "checks": 1, "measures": {"recovery": [1]}}', "verdict.json is not a verdict: .*"),
]


@pytest.mark.parametrize(("file", "content", "reason"), BROKEN)
def test_a_broken_folder_is_listed_with_reason(file: str, content: str | None, reason: str, runs: Path, capsys: Output) -> None:
    path = runs / "20260101-000500-bench-seed1" / file
    path.unlink()
    if content is not None:
        path.write_text(content, "latin-1")
    one = next(one for one in entries(runs) if one.name == path.parent.name)
    assert one.state == "broken" and re.fullmatch(reason, one.reason)
    assert (one.scenario, one.seed, one.date) == ("bench", 1, "2026-01-01 00:05:00")
    assert main(["list", str(runs)]) == 0 and " broken=1 " in capsys.readouterr().out.splitlines()[-1]
    assert '<span class="badge unknown">broken</span>' in (runs / "index.html").read_text()


def test_folders_that_are_half_there_and_those_of_models(runs: Path) -> None:
    (runs / "20260101-002000-bench-seed1").mkdir()
    (runs / "mine/history").mkdir(parents=True)
    models = runs / "20260101-002500-compare-seed1-all"
    models.mkdir()
    (models / "models.json").write_text("{}")
    (models / "models.html").write_text("")
    found = {one.name: one for one in entries(runs)}
    assert found["20260101-002000-bench-seed1"].reason == found["mine"].reason == "spec.json is missing"
    assert (found[models.name].state, found[models.name].page) == ("table of models", f"{models.name}/models.html")


def test_the_table_and_the_page(runs: Path, capsys: Output) -> None:
    assert main(["list", str(runs)]) == 0
    page = (runs / "index.html").read_text()
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    same("reports/listed.html", steady(f"{capsys.readouterr().out}\n{page}", runs))


def test_objectives_are_shown_when_a_verdict_has_them(runs: Path, capsys: Output) -> None:
    assert [objectives([{"result": result} for result in results]) for results in ([], ["met"], ["met", "unknown"])] == [
        "", "met", "1 of 2 unknown",
    ]  # fmt: skip
    path = runs / "20260101-000500-bench-seed1/verdict.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "slo": [{"result": "met"}, {"result": "missed"}]}))
    assert main(["list", str(runs)]) == 0 and "1 of 2 missed  20260101-000500" in capsys.readouterr().out
    assert ">1 of 2 missed</td>" in (runs / "index.html").read_text()


def test_no_name_of_a_run_is_markup(runs: Path) -> None:
    script = "<script>alert(1)</script>"
    judged(runs / "20260101-003000-bench-seed1-<b>x", TYPICAL, mutant="<i>", git_commit="<u>", scenario=script)
    assert main(["list", str(runs)]) == 0
    page = (runs / "index.html").read_text()
    assert not re.search("<(b|i|u|script)>", page) and "&lt;script&gt;" in page


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, capsys: Output) -> None:
    assert main(["list", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"list: folder {tmp_path / 'none'}: No such file or directory\n"
    assert main(["list", str(tmp_path)]) == 0 and "there is none yet" in (tmp_path / "index.html").read_text()


@pytest.mark.slow
def test_a_thousand_runs_are_listed_without_spark_and_without_drawing(runs: Path) -> None:
    """Each would take seconds to load alone."""
    first = runs / "20260101-000000-bench-seed1"
    steps = [f'{{"t_ns":{second}000000000,"wall_ns":1,"srv_us":2,"done":9,"finished":{100 * second}}}' for second in range(180)]
    (first / "samples/queue.jsonl").write_text("\n".join(steps))
    decided = json.loads((first / "verdict.json").read_text())
    (first / "verdict.json").write_text(json.dumps({**decided, "reasons": ["x" * 100] * 300}))
    for number in range(1_000):
        shutil.copytree(first, runs / f"20260102-{number // 60:02d}{number % 60:02d}00-bench-seed1")
    program = "import sys; from reports.command import main; code = main(['list', sys.argv[1]])\n"
    program += "print(code, 'pyspark' in sys.modules, 'matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, str(runs)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["0", "False", "False"]
    assert (runs / "index.html").read_text().count("-bench-seed1") > 1_000


def test_servers_and_declared_loss_of_a_run_are_listed(tmp_path: Path) -> None:
    loss = [{"fault": "primary-kill", "text": "what no replica had"}]
    servers = {"topology": "sentinel", "durability": "server"}
    run = judged(tmp_path / "runs" / "20260101-000000-bench-seed1-sentinel-server", TYPICAL, **servers)
    decided = json.loads((run / "verdict.json").read_text())
    found = [{"name": "loss by primary-kill", "rows": 2, "examples": []}]
    (run / "verdict.json").write_text(json.dumps({**decided, "spec": {"loss": loss, **servers}, "findings": found}))
    (entry,) = entries(run.parent)
    assert (entry.state, entry.lossy, entry.servers, entry.label) == ("valid", True, "topology sentinel, durability server", "")
    page = document([entry])
    assert '<span class="badge lossy">valid, with loss</span>' in page and "topology sentinel, durability server" in page
