"""P1 to P8 on small hand-written histories that must pass and that must fail, on both sides of the wrap: one channel each, all
judged in one run; a run that is valid; and one that proves nothing."""

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from record.history import SCHEMA_VERSION
from tests.golden import same
from tests.reports import channel_story, good_channels
from tests.reports.cases import handed
from tests.reports.cases.channels import CASES
from tests.reports.conftest import Checked, Judge, by_subject, lines_of, violations_of

#: The modules that add their cases to those of `channels` when they are imported.
MORE_CASES = (handed,)

CHECKS = {f"P{number}" for number in range(1, 9)}


def replaced(story: channel_story.ChannelStory, strays: int, at_s: float = 57.0) -> str:
    """A primary is killed, and so many scripts run at it when it is no primary any more; what P9 is told of it."""
    story.spec["loss"] = [{"fault": "primary-kill", "before_ms": 1_000, "until": "inject", "after_ms": 250, "text": "a second"}]
    story.spec["plan"].append({"fault": "4-primary-kill", "name": "primary-kill", "target": "servers"})
    story.stages("4-primary-kill", "servers", at_s, at_s + 1.0, at_s + 1.5, at_s + 2.0, detail="{} seen")
    detail = f"{strays} scripts of clients ran at server-0"
    story.fault("4-primary-kill", "servers", "stray", at_s + 1.4, result="missing" if strays else "ok", detail=detail)
    return f"shows: {detail}"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, checked: Checked, spark: SparkSession) -> list[Row]:
    """Violations of one run in which all cases happened, and at last a primary was replaced."""
    story = good_channels.healthy(tmp_path_factory.mktemp("channels") / "run")
    replaced(story, 42)
    for name, (tell, preset, _) in CASES.items():
        tell(story, story.channel(name, preset=preset))
    run = story.write(closed=good_channels.END_S)
    checked(run, *CHECKS, "P9")
    return [row for row in violations_of(run, spark) if row["check"].startswith("P")]


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> dict[str, set[tuple[str, str, str]]]:
    """Violations by channel."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for subject, some in by_subject(row for row in rows if row["check"] != "P9").items():
        found.setdefault(subject.split("/")[0], set()).update(some)
    return found


def test_scripts_at_a_server_that_was_replaced_are_a_violation(rows: list[Row]) -> None:
    told = [(row["subject"], row["level"], row["detail"]) for row in rows if row["check"] == "P9"]
    assert told == [("4-primary-kill", "violated", "shows: 42 scripts of clients ran at server-0")]


def test_all_that_is_found_is_told_as_ever(rows: list[Row]) -> None:
    same("reports/violations_of_channels.txt", lines_of({}, rows))


@pytest.mark.parametrize("channel", CASES)
def test_a_channel_is_found_for_what_happened_on_it_and_for_nothing_else(channel: str, found: dict) -> None:
    assert found.get(channel, set()) == CASES[channel][2]


def test_every_check_of_channels_has_cases_that_pass_and_that_fail() -> None:
    assert {check for *_, expected in CASES.values() for check, *_ in expected} == CHECKS
    assert sum(not expected for *_, expected in CASES.values()) >= len(CASES) // 3


@pytest.mark.slow
def test_a_run_in_which_all_went_well_is_valid(tmp_path: Path, judged: Judge) -> None:
    verdict = judged(good_channels.healthy(tmp_path / "run").write(closed=good_channels.END_S))
    assert (verdict["reasons"], verdict["verdict"], verdict["measures"]["lost"]) == ([], "valid", 0)
    assert {check["id"] for check in verdict["checks"]} == {"H0", "H1", "H2", "H3", *CHECKS}


@pytest.mark.slow
def test_a_run_in_which_nothing_happened_proves_nothing(tmp_path: Path, checked: Checked) -> None:
    story = channel_story.ChannelStory(tmp_path / "run")
    good_channels.cast(story)
    story.channel("silent", fan_out=2)
    story.subscribe(good_channels.S2, "silent", "reader", 1)
    told = checked(story.write(closed=good_channels.END_S), "H2", *CHECKS)
    assert {check: verdict for check, (verdict, _) in told.items()} == dict.fromkeys({"H2", *CHECKS}, "unknown")
    assert told["P1"][1] == "every subscriber had no message to wait for"
    assert "no channel was set to cross the wrap" in told["H2"][1]


@pytest.mark.slow
@pytest.mark.parametrize(("strays", "waited", "verdict"), [(0, 0.0, "valid"), (42, 0.0, "violated"), (42, 1.0, "unknown")])
def test_strays_without_a_core_are_in_doubt(strays: int, waited: float, verdict: str, tmp_path: Path, checked: Checked) -> None:
    """Who got no core may have heard of the new server later than it must."""
    story = good_channels.healthy(tmp_path / "run")
    shown = replaced(story, strays)
    story.cpu_wait = dict.fromkeys(story.cpu, waited)
    found, why = checked(story.write(closed=good_channels.END_S), "P9")["P9"]
    assert (found, why.rpartition("it: ")[2]) == (verdict, f"4-primary-kill {shown}" if strays else "")


@pytest.mark.slow
def test_a_witness_that_lacks_what_a_killed_process_acknowledged_is_a_hole(tmp_path: Path, checked: Checked) -> None:
    story = good_channels.healthy(tmp_path / "run")
    story.channel("cut")
    story.subscribe(good_channels.S1, "cut", "reader", 1)
    story.publish(good_channels.P1, "cut", "a", 2)
    story.fetch(good_channels.S1, "cut", "reader", 3, returned=False)
    story.acknowledge(good_channels.S1, "cut", "reader", 3.1)
    told = checked(story.write(closed=good_channels.END_S), "H0", "P8")
    why = "cut/reader got a and acknowledged it in subscriber-1, which was killed later, and its sink lacks it"
    assert told["H0"] == ("unknown", why)
    assert told["P8"][0] == "valid"


@pytest.mark.slow
def test_fetches_without_a_witness_are_unknown(tmp_path: Path, checked: Checked) -> None:
    told = checked(good_channels.healthy(tmp_path / "run", witness=False).write(closed=good_channels.END_S), "P8")
    assert told["P8"][0] == "unknown"
    assert "the manifest declares no sink of subscriber-1: its fetches have no second witness" in told["P8"][1]


@pytest.mark.slow
def test_a_history_from_before_the_witness_is_judged_without_it(tmp_path: Path, judged: Judge) -> None:
    run = good_channels.healthy(tmp_path / "run", witness=False).write(closed=good_channels.END_S)
    for file in (run / "history").iterdir():
        file.write_text(file.read_text().replace(f'{{"v":{SCHEMA_VERSION},', '{"v":7,'))
    verdict = judged(run)
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    not_judged = {check["id"]: check["not_judged"] for check in verdict["checks"] if check["not_judged"]}
    assert not_judged == {"P8": ["what callers of fetch were handed: a history of version 7 has no second witness of it"]}
