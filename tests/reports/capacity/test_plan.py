"""Plans against arithmetic by hand, and what cannot be answered: one line that says what would be possible."""

import copy
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports import command, errors
from reports.capacity import page, prediction, question
from reports.capacity.little import bottleneck, little
from reports.capacity.measurement import Bin, read
from reports.capacity.prediction import confirmed, predict
from reports.simulation import measured as simulation
from tests.given import Output, Patch
from tests.golden import Told, same, tells
from tests.reports.capacity.planted import Row, asked, content, law, saturated, write
from tests.reports.conftest import steady
from tests.reports.figures import figures_told as figures_told


@pytest.fixture(scope="module")
def made() -> Row:
    """A measurement whose workers scale, without its arrivals: only the simulator reads them, and they are most of it."""
    found = content()
    return {**found, "steps": [{**step, "arrivals_ms": []} for step in found["steps"]]}


@pytest.fixture(scope="module")
def run(made: Row, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder."""
    return write(tmp_path_factory.mktemp("capacity"), made)


def refused(run: Path, capsys: Output, *arguments: str) -> str:
    """The one line with which this question is answered."""
    assert command.main(["capacity", str(run), *arguments]) == 2
    came = capsys.readouterr()
    assert came.out == "" and came.err.count("\n") == 1
    return came.err


def test_a_plan_is_the_arithmetic_of_what_was_measured(run: Path) -> None:
    """Service of 21 ms and five places: 238 jobs/s a busy worker, used to 80 %."""
    found = asked(run, "--rate", "300")["plan"]
    assert found["utilisation"] == pytest.approx(0.8)
    # 300 / (238 * 0.8) = 1.6, and one to spare.
    assert (found["workers"], found["spare"], found["shards"]) == (3, 1, 1)
    assert (found["server_share"], found["backlog_jobs"]) == (pytest.approx(300 * 80e-6), 300 * 3_600)
    assert found["memory_gib"] == pytest.approx(300 * 3_600 * (2_500 + 700) * 1.12 / 2**30)
    assert found["network_mbit_per_s"] == pytest.approx(300 * 5_200 * 8 / 1e6)
    assert found["capacity"] == pytest.approx(3 * 5 / 0.021, rel=0.01)
    assert found["drain_s"] == pytest.approx(300 * 3_600 / (found["capacity"] - 300))
    assert found["worker_lost_headroom"] == pytest.approx(2 * 5 / 0.021 / 300 - 1, rel=0.01)
    assert (found["worker_lost_s"], found["primary_lost_jobs"]) == (4.2, pytest.approx(300 * 1.5))
    assert found["primary_lost_s"] == pytest.approx(450 / (found["capacity"] - 300))
    hourly = 3 * 0.04 + 2 * 0.06 + found["memory_gib"] * 2 * 0.006
    assert found["cost_per_million"] == pytest.approx(hourly / 300 / 3_600 * 1e6 + 5_200e6 / 2**30 * 0.01)


def test_payload_and_handler_change_what_hangs_on_them(run: Path) -> None:
    small, large = (asked(run, "--rate", "300", "--payload-bytes", str(size))["plan"] for size in (2_048, 4_096))
    assert large["memory_gib"] - small["memory_gib"] == pytest.approx(300 * 3_600 * 2_048 * 1.12 / 2**30)
    assert large["network_mbit_per_s"] - small["network_mbit_per_s"] == pytest.approx(300 * 2 * 2_048 * 8 / 1e6)
    slow = asked(run, "--rate", "300", "--handler-ms", "60")["plan"]
    # 61 ms of five places: 82 jobs/s, used to 80 %: 4.6 without loss of scaling.
    assert slow["workers"] >= 6 and slow["memory_gib"] == small["memory_gib"]


def test_shards_follow_the_ceiling_of_a_server(tmp_path: Path, made: Row) -> None:
    slow = [{**step, "server": {**step["server"], "us_per_job": 2_000.0}} for step in made["steps"]]
    run = write(tmp_path, {**made, "steps": slow})
    # 760 * 2 ms = 1.52 busy servers, each used to at most 70 %.
    assert asked(run, "--rate", "760")["plan"]["shards"] == 3
    assert asked(run, "--rate", "760", "--server-utilisation", "0.9")["plan"]["shards"] == 2


def test_a_tighter_target_leaves_workers_less_busy(run: Path, made: Row) -> None:
    calm = min(step["latency_ms"]["p99"] for step in made["steps"] if step["meets"])
    assert asked(run, "--rate", "300", "--p99-ms", str(calm + 0.001))["plan"]["utilisation"] <= 0.9


def printed(run: Path, capsys: Output, *arguments: str) -> tuple[str, str]:
    """What the command prints, with the file that it writes, whose numbers are rounded; and its page without the script."""
    assert command.main(["capacity", str(run), *arguments]) == 0
    text = (run / "plan.json").read_text()
    assert json.loads(text) == asked(run, *arguments)
    rounded = json.dumps(json.loads(text, parse_float=lambda number: f"{float(number):.5g}"), indent=1)
    shown = re.sub(r"<script>.*?</script>|sha256-[^']*", "", (run / "capacity.html").read_text(), flags=re.DOTALL)
    return steady(f"{capsys.readouterr().out}\n{rounded}\n", run), steady(shown, run)


@pytest.mark.usefixtures("figures_told")
def test_the_text_ends_with_a_line_for_scripts(run: Path, capsys: Output) -> None:
    text, shown = printed(run, capsys, "--rate", "300")
    same("reports/plan.txt", text)
    same("reports/capacity.html", shown)


@pytest.mark.usefixtures("figures_told")
def test_a_poor_measurement_has_a_plan_and_a_page_that_say_what_they_lack(
    tmp_path: Path, capsys: Output, monkeypatch: Patch
) -> None:
    """Its law is refused, no command was counted, nothing was drilled or verified, and a step is void."""
    monkeypatch.setattr(simulation, "PLAN_JOBS", 4_000)
    poor = {**content(saturated), "recovery": {}, "verify": []}
    for step in poor["steps"]:
        step["server"] |= {"sent": {}, "inside": {}}
    poor["steps"][-1]["void"] = "the driver used 0.86 of its core"
    text, shown = printed(run := write(tmp_path, poor), capsys, "--rate", "4000", "--simulate")
    same("reports/plan_of_little.txt", f"{text}\n{shown}")
    found = asked(run, "--rate", "1000")
    # One server never did more than 621 jobs/s, whatever its ceiling by microseconds is.
    assert found["plan"]["shards"] == 3 and found["plan"]["capacity"] <= 3 * 621


UNANSWERABLE = [
    (["--rate", "nan"], "rate is nan, it must be above 0"),
    (["--worker-utilisation", "1.5"], "worker_utilisation is 1.5, it must be above 0 and at most 1"),
    (["--p99-ms", "15"], "p99_ms is 15, below the handler's own 20 ms: with this handler "),
    (["--rate", "900", "--workers", "3"], "3 workers with 5 handlers at once do at most 714 jobs/s of 20 ms: 900 jobs/s need 4 "),
    (["--model", "bull"], "model is 'bull', the measurement is of 'lanes': measure it with `python -m chaos capacity "),
    (["--topology", "cluster"], "measure it with `python -m chaos capacity --topology cluster`"),
    (["--rate", "50000"], "rate is 50,000, 65.3 times the 766 jobs/s that were measured: a plan goes at most 4 times"),
    (["--rate", "300", "--payload-bytes", "100000"], "payload_bytes is 100,000, 48.8 times the 2,048 bytes"),
    (["--prices", "nowhere.toml"], "price file nowhere.toml: No such file"),
]


@pytest.mark.parametrize(("arguments", "words"), UNANSWERABLE)
def test_what_cannot_be_answered_says_what_can(run: Path, capsys: Output, arguments: list[str], words: str) -> None:
    assert words in refused(run, capsys, *arguments)


def test_a_given_number_of_workers_is_judged(run: Path) -> None:
    found = asked(run, "--rate", "300", "--workers", "2")["plan"]
    assert found["workers"] == 2 and found["spare"] == 0
    tight = asked(run, "--rate", "450", "--workers", "2")["plan"]
    assert tight["spare"] < 0 and tight["worker_lost_headroom"] < 0


def test_half_of_the_steps_predict_the_limit(tmp_path: Path, made: Row) -> None:
    found = predict(read(write(tmp_path, made)))
    assert found.workers == 4 and found.steps == 3
    assert found.low <= law(4) <= found.high and found.low < found.rate < found.high
    never = [{**step, "meets": True} for step in made["steps"]]
    assert "do not have both" in predict(read(write(tmp_path, {**made, "steps": never}))).reason


def stepped(p99_by_rate: dict[float, float], made: Row, *, spread: float, jobs: int = 20_000) -> Row:
    """Steps at these rates, whose latencies lie that share around their p99."""
    plain = max(made["steps"], key=lambda step: step["workers"])
    of_all: Row = {"in_system": {"counted": 10, "certain": 10, "possible": 10}, "dropped": 0}
    of_all["waiting"] = {"mean": 1, "slope_per_s": 0, "slope_interval": [-1, 1]}
    steps = []
    for rate, p99_ms in p99_by_rate.items():
        around = [[p99_ms * (1 - spread), p99_ms, 0.09 * jobs], [p99_ms, p99_ms * (1 + spread), 0.01 * jobs]]
        latency = {"p50": 21.0, "p99": p99_ms, "histogram": [[20, 22, 0.9 * jobs], *around]}
        steps.append({**plain, **copy.deepcopy(of_all), "rate": rate, "latency_ms": latency, "meets": p99_ms <= 100})
    return {**made, "steps": steps}


#: A knee: p99 by rate, of which every second step predicts.
KNEE = {600.0: 40.0, 650.0: 45.0, 700.0: 70.0, 725.0: 80.0, 750.0: 97.0, 775.0: 99.0, 800.0: 103.0, 825.0: 110.0, 900.0: 700.0}


@pytest.mark.parametrize(("spread", "low", "high"), [(0.001, 750, 800), (0.3, 700, 800), (0.9, 700, 900)])
def test_what_a_p99_may_be_off_widens_the_interval(tmp_path: Path, made: Row, spread: float, low: float, high: float) -> None:
    """At 750 and at 800 jobs/s the p99 is near to the target: with such a spread either may be on the other side of it."""
    found = predict(read(write(tmp_path, stepped(KNEE, made, spread=spread))))
    assert 750 < found.rate < 800 and (found.low, found.high) == (low, high)


def test_a_step_whose_backlog_grows_missed_surely(tmp_path: Path, made: Row) -> None:
    planted = stepped(KNEE, made, spread=0.9)
    for step in planted["steps"]:
        if step["rate"] == 800:
            step["waiting"]["slope_interval"] = [3, 5]
    assert predict(read(write(tmp_path, planted))).high == 800


def placed(rate: float, p99: float, meets: bool, *, slope: float = 0, dropped: int = 0, jobs: int = 1_000) -> Any:
    """A step as far as a prediction reads it, with ten jobs at a time and even latencies; without jobs its p99 is sure."""
    latency = SimpleNamespace(p99=p99, histogram=[Bin(0, p99 / 0.99, jobs)] if jobs else [])
    there = {"waiting": SimpleNamespace(slope_interval=(slope, 5)), "in_system": SimpleNamespace(counted=10)}
    return SimpleNamespace(rate=rate, meets=meets, dropped=dropped, latency_ms=latency, **there)


def predicted() -> Told:
    """The knee; which steps missed surely, with the interval of their p99; what is sure; where rates cross the target."""
    met, missed, low, high = placed(1, 99, True), placed(3, 101, False), placed(0.5, 80, True), placed(4, 300, False)
    for steps in ([], [met], [missed], [met, missed], [placed(1, 120, False), met], [high, low, met, missed, low]):
        yield "knee", (found := prediction.knee(steps)) and [one.rate for one in found]
    more: Any = ({"slope": 0.1}, {"dropped": 1}, {"jobs": 5}, {"jobs": 0})
    for one in (missed, high, placed(3, 100, False, jobs=0), *(placed(3, 101, False, **each) for each in more)):
        bounds = [round(value, 3) for value in prediction.p99_interval(one)]
        yield "missed surely", (prediction.missed_surely(one, 100), bounds)
    sure = placed(1, 100, True, jobs=0), placed(3, 101, False, jobs=0)
    far_apart = [missed, placed(2, 900, False), placed(9, 0, True)]
    for steps in ([met, missed], [low, met, missed, high], [low, met, *sure, high], far_apart):
        yield "surely", prediction.surely(steps, (met, missed), 100)
    for low, high in ((90, 110), (100, 110), (90, 100), (0, 110), (1, 10_000), (10, 10_000)):
        yield "crossing", round(prediction.crossing(placed(1, low, True), placed(3, high, False), 100), 6)


def test_a_prediction_is_made_as_ever() -> None:
    tells("reports/predicted.txt", predicted)


CONFIRMED = [
    ([(0.9, True), (1.1, False)] * 3, True, "The prediction holds"),
    ([(0.9, True), (1.1, False)] * 2, False, "is not to be used"),
    ([(0.9, True), (1.1, False)] * 2 + [(0.9, True), (1.1, True)], False, "missed 2 of 3 times above"),
    ([(0.9, False), (1.1, False)] * 3, False, "met 0 of 3 times below it"),
    ([], False, "was not verified"),
]


@pytest.mark.parametrize(("runs", "holds", "words"), CONFIRMED)
def test_a_prediction_needs_all_runs(tmp_path: Path, made: Row, runs: list[tuple[float, bool]], holds: bool, words: str) -> None:
    verify = [{"rate": 700.0, "times": times, "meets": meets, "p99_ms": 0.5} for times, meets in runs]
    found = confirmed(read(write(tmp_path, {**made, "verify": verify})))
    assert found.holds == holds and words in found.words


COUNTED = [*((counted, 10, 11, True) for counted in (9.5, 10, 11, 11.5)), (9.4, 10, 11, False), (11.6, 10, 11, False)]


@pytest.mark.parametrize(("counted", "certain", "possible", "holds"), [*COUNTED, (0, 0, 0, True), (1, 0, 0, False)])
def test_littles_law_is_checked_on_each_step(
    tmp_path: Path, made: Row, counted: float, certain: int, possible: int, holds: bool
) -> None:
    """Also where the backlog grows: the count and the times are of the same instants."""
    assert len(made["steps"]) > 4 and all(one.holds for one in little(read(write(tmp_path, made))))
    steps = [dict(step) for step in made["steps"]]
    steps[-1]["in_system"] = {"counted": counted, "certain": certain, "possible": possible}
    assert steps[-1]["waiting"]["slope_interval"][0] > 0
    found = little(read(write(tmp_path, {**made, "steps": steps})))
    assert [one.step.rate for one in found if not one.holds] == ([] if holds else [steps[-1]["rate"]])


def test_no_time_of_the_server_counts_twice(tmp_path: Path, made: Row) -> None:
    """A script's time has that of the commands in it."""
    found = read(write(tmp_path, made)).met[-1].server
    assert sorted(page.shares(found)) == [
        *(("Lua of the scripts", 20.0), ("blpop, sent", 12.0), ("hset, in scripts", 25.0), ("zadd, in scripts", 15.0))
    ]
    assert sum(us for _, us in page.shares(found)) == sum(one.us for one in found.sent.values())


PARTS = [("server", "the server"), ("worker", "the workers' processors"), ("driver", "the driver")]


@pytest.mark.parametrize(("part", "name"), PARTS)
def test_the_busiest_part_is_the_bottleneck(tmp_path: Path, made: Row, part: str, name: str) -> None:
    steps = [{**step, "finished": step["finished"] // 2, part: {**step[part], "cpu_share": 0.95}} for step in made["steps"]]
    found = bottleneck(read(write(tmp_path, {**made, "steps": steps})))
    assert found.name == name and "nothing was full" not in found.words


def test_prices_are_read_with_their_bounds(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(question.FILE.read_text().replace("worker_per_hour = 0.04", "worker_per_hour = -1"))
    with pytest.raises(errors.JudgeError, match=r"mine.toml.worker_per_hour is -1.0, it must be at least 0"):
        question.read(file)
    file.write_text("currency = ")
    with pytest.raises(errors.JudgeError, match=r"mine.toml is not TOML"):
        question.read(file)


def test_a_measurement_that_is_not_there_is_one_line_that_says_what_makes_one(tmp_path: Path, capsys: Output) -> None:
    for path in (tmp_path, tmp_path / "none"):
        assert "does not exist; `python -m chaos capacity` measures, and says in which folder" in refused(path, capsys)
