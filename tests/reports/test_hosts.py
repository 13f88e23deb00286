"""The clocks of several hosts: what their measures bound, what they contradict, and what the judge makes of it."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reports import file_facts, hosts, lines
from reports.checks.h3_recorder_sound import CHECK as H3
from reports.corrupt.history import History
from reports.facts import MS, Process, Run, Usage
from reports.folder import history_files
from reports.hosts import Host, hosts_of
from reports.meaning import widened
from tests.reports import good_channels, story
from tests.reports.conftest import Checked
from tests.reports.test_channel_checks import CHECKS as CHANNEL_CHECKS

S = 1_000 * MS

#: The server's clock at the harness's instant 0.
SERVER_US = 1_700_000_000_000_000

#: When the harness looks at the server's clock.
SECONDS = [float(second) for second in range(61)]
#: And the process on the other host.
LOOKS_S = [1.0, 10.5, 20.5, 30.5, 40.5, 50.5, 59.0]

Clock = Callable[[int], int]


class Written:
    """History files of a harness and of a process on another host, in true time: the harness's clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, host: str, looks_s: list[float], *, clock: Clock, server: Clock, trip_ns: int) -> Path:
        """A file with an offset row at each of these instants, which took so long and of which the server saw the middle."""
        rows: list[dict] = [{"kind": "open", "role": name, "host": host, "boot_id": host, "t_ns": clock(0)}]
        for look_s in looks_s:
            at_ns = round(look_s * S)
            sent_ns, end_ns = clock(at_ns - trip_ns // 2), clock(at_ns + trip_ns // 2)
            rows.append({"kind": "offset", "t_ns": end_ns, "first_send_ns": sent_ns, "done_ns": end_ns, "srv_us": server(at_ns)})
        rows.append({"kind": "close", "t_ns": clock(60 * S)})
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
        return path


def steady(at_ns: int) -> int:
    """A server's clock that does not jump."""
    return SERVER_US + at_ns // 1_000


def jumping(at_ns: int) -> int:
    """One that goes ahead by an hour at 25 s and back at 35 s."""
    return steady(at_ns) + 3_600_000_000 * (25 * S <= at_ns < 35 * S)


def compared(folder: Path, clock: Clock, server: Clock = steady, *, looks_s: list[float] = LOOKS_S, trip_ns: int = MS) -> Host:
    """The other of two hosts, of a minute in which it measured its clock every 10 s, and the harness once a second."""
    written = Written(folder)
    ends = {"server": server, "trip_ns": trip_ns}
    own = written.file("harness", "here", SECONDS, clock=lambda at_ns: at_ns, **ends)
    first, second = hosts_of([written.file("producer", "there", looks_s, clock=clock, **ends), own])
    assert (first.name, first.files, first.error_ns, first.trouble) == ("here", ("harness.jsonl",), 0, "")
    return second


def test_times_of_another_host_are_moved_to_the_clock_of_the_harness(tmp_path: Path) -> None:
    found = compared(tmp_path, lambda at_ns: at_ns + 7_000 * S)
    assert (found.name, found.files, found.trouble) == ("there", ("producer.jsonl",), "")
    assert abs((found.ahead_ms or 0) - 7_000_000) <= found.error_ns / MS < 5
    moved = found.moved([7_000 * S, 7_030 * S, 7_060 * S])
    assert all(abs(int(at_ns) - true_ns) <= found.error_ns for at_ns, true_ns in zip(moved, (0, 30 * S, 60 * S), strict=True))


def test_a_clock_may_drift_as_far_as_a_quartz_does(tmp_path: Path) -> None:
    found = compared(tmp_path, lambda at_ns: at_ns + at_ns * 150 // 1_000_000)
    assert found.trouble == ""
    assert all(abs(int(found.moved(at_s * S + at_s * 150_000)) - at_s * S) <= found.error_ns < 5 * MS for at_s in range(61))


CLOCKS: dict[str, tuple[Clock, str]] = {
    "fast": (lambda at_ns: at_ns + at_ns // 100, "ms ahead of the harness's between"),
    "slow": (lambda at_ns: at_ns - at_ns // 1_000, "ms behind of the harness's between"),
    "a small jump": (
        lambda at_ns: at_ns + S + 20 * MS * (at_ns >= 33 * S),
        "went 20.0 ms ahead of the harness's between 30.5 and 40.5 s",
    ),
    "a jump back": (lambda at_ns: at_ns - 2 * S * (at_ns >= 33 * S), "went 2000.0 ms behind of the harness's between"),
}


@pytest.mark.parametrize(("clock", "words"), CLOCKS.values(), ids=CLOCKS)
def test_a_clock_that_jumps_or_runs_wrong_is_found_and_named_with_its_figures(tmp_path: Path, clock: Clock, words: str) -> None:
    found = compared(tmp_path, clock)
    assert "the clock of host there" in found.trouble and words in found.trouble
    assert f"A drift of {hosts.DRIFT_PPM} ppm" in found.trouble
    assert words.partition(" between")[0] in compared(tmp_path, clock, looks_s=LOOKS_S[::6]).trouble
    # What such a clock shows is off by as much as it moved between two measures, and no check is misled by it.
    assert all(abs(int(found.moved(clock(at_s * S))) - at_s * S) <= found.error_ns for at_s in range(61))


def test_a_slow_round_trip_is_bounded_by_its_neighbours(tmp_path: Path) -> None:
    written, plain = Written(tmp_path), {"clock": lambda at_ns: at_ns, "server": steady}
    own = written.file("harness", "here", SECONDS, trip_ns=MS, **plain)
    one = written.file("worker-1", "there", [5.0, 15.0, 35.0, 55.0], trip_ns=MS, **plain)
    other = written.file("worker-2", "there", [25.0, 45.0], trip_ns=400 * MS, **plain)
    assert hosts_of([own, one, other])[1].error_ns < 6 * MS


def test_a_clock_that_is_known_too_badly_is_not_known(tmp_path: Path) -> None:
    found = compared(tmp_path, lambda at_ns: at_ns, trip_ns=300 * MS)
    assert "is only known to" in found.trouble and "more than 50 ms" in found.trouble


@pytest.mark.parametrize("looks_s", [[], [30.5]], ids=["none", "one"])
def test_two_measures_are_needed(tmp_path: Path, looks_s: list[float]) -> None:
    found = compared(tmp_path, lambda at_ns: at_ns, looks_s=looks_s)
    assert found.trouble.startswith("nothing bounds the clock of host there (boot there)")


def test_a_jump_of_the_servers_clock_is_none_of_the_host(tmp_path: Path) -> None:
    found = compared(tmp_path, lambda at_ns: at_ns + 2 * S, server=jumping)
    assert found.trouble == "" and abs((found.ahead_ms or 0) - 2_000) <= found.error_ns / MS


def test_a_measure_after_a_step_back_is_not_taken_for_one_before_it(tmp_path: Path) -> None:
    """The server's clock steps back at 30.6 s, and the harness looks at 31 s: what is measured at 30.7 s, it showed at 29.7 s."""
    looks_s = [1.0, 10.5, 20.5, 30.7, 40.5, 50.5, 59.0]
    found = compared(tmp_path, lambda at_ns: at_ns, server=lambda at_ns: steady(at_ns - S * (at_ns >= 30.6 * S)), looks_s=looks_s)
    assert found.trouble == "" and abs(found.ahead_ms or 0) <= found.error_ns / MS < 10


def test_of_one_host_only_the_first_lines_are_read(tmp_path: Path) -> None:
    written, plain = Written(tmp_path), {"server": steady, "trip_ns": MS, "clock": lambda at_ns: at_ns}
    files = [written.file(name, "here", [1.0], **plain) for name in ("harness", "worker-1")]
    assert hosts_of(files) == (Host("here", "here", ("harness.jsonl", "worker-1.jsonl")),)


def test_a_file_that_does_not_say_where_it_was_written_has_times_of_an_unknown_clock(tmp_path: Path) -> None:
    written, plain = Written(tmp_path), {"server": steady, "trip_ns": MS}
    own = written.file("harness", "here", SECONDS, clock=lambda at_ns: at_ns, **plain)
    other = written.file("worker-1", "there", SECONDS[::10], clock=lambda at_ns: at_ns + S, **plain)
    headless = written.file("worker-2", "there", SECONDS[::10], clock=lambda at_ns: at_ns + S, **plain)
    headless.write_text("".join(headless.read_text().splitlines(keepends=True)[1:]))
    (tmp_path / "worker-3.jsonl").touch()
    empty = tmp_path / "worker-3.jsonl"
    # On one host they are of its clock like all others, and H0 names what they lack.
    assert hosts_of([own, headless, empty]) == (Host("here", "here", ("harness.jsonl",)),)
    _, there, nowhere = hosts_of([own, other, headless, empty])
    assert (there.files, there.trouble) == (("worker-1.jsonl",), "")
    assert nowhere == Host("not known", "", ("worker-2.jsonl",), trouble=nowhere.trouble)
    assert "on which host history file worker-2.jsonl was written" in nowhere.trouble


def test_a_host_without_a_boot_id_is_known_by_its_name(tmp_path: Path) -> None:
    written, plain = Written(tmp_path), {"server": steady, "trip_ns": MS}
    own = written.file("harness", "here", SECONDS, clock=lambda at_ns: at_ns, **plain)
    beside = written.file("worker-1", "here", [1.0], clock=lambda at_ns: at_ns, **plain)
    away = written.file("worker-2", "there", SECONDS[::10], clock=lambda at_ns: at_ns + S, **plain)
    for file, name in ((beside, "here"), (away, "there")):
        file.write_text(file.read_text().replace(f'"boot_id":"{name}"', '"boot_id":""', 1))
    here, there = hosts_of([own, beside, away])
    assert here.files == ("harness.jsonl", "worker-1.jsonl")
    assert (there.files, there.trouble) == (("worker-2.jsonl",), "") and abs((there.ahead_ms or 0) - 1_000) <= there.error_ns / MS


# --- what is made of it ------------------------------------------------------------------------------------------------------

HERE = Host("here", "here", ("harness.jsonl",))
THERE = Host("there", "there", ("producer-1.jsonl",), at_ns=(2 * S, 62 * S), shifts_ns=(-2 * S, -2 * S), error_ns=3 * MS)


def test_all_instants_of_a_row_and_of_its_items_are_moved() -> None:
    times = {"t_ns": 12 * S, "first_send_ns": 11 * S, "last_send_ns": 11 * S, "done_ns": 12 * S, "intended_ns": 10 * S}
    sent = {"v": 9, "seq": 0, "kind": "operation", "f": "enqueue", "proc": "producer-1", **times, "srv_us": 7}
    sent["items"] = [{"job": "a", "intended_ns": 10 * S, "delay_ms": 5}, {"job": "b"}]
    bare = {"v": 9, "seq": 1, "kind": "close", "proc": "producer-1", "t_ns": 13 * S}
    block = lines.parsed([json.dumps(row).encode() for row in (sent, bare)], "producer-1.jsonl", THERE)
    moved, last = block.rows.to_pylist()
    assert {name: moved[name] for name in times} == {name: at_ns - 2 * S for name, at_ns in times.items()}
    assert (moved["srv_us"], last["t_ns"], last["done_ns"], last["items"]) == (7, 11 * S, None, None)
    one, other = (event["item"] for event in block.events.to_pylist())
    assert (one["job"], one["intended_ns"], one["delay_ms"]) == ("a", 8 * S, 5)
    assert (other["job"], other["intended_ns"]) == ("b", None)


def test_intervals_of_another_host_are_widened_by_its_error(spark: SparkSession) -> None:
    names = ("source", "f", "intended_ns", "first_send_ns", "last_send_ns", "done_ns")
    schema = "source string, f string, intended_ns bigint, first_send_ns bigint, last_send_ns bigint, done_ns bigint"
    rows = [
        ("harness.jsonl", "claim", None, 10 * S, 10 * S, 11 * S),
        ("producer-1.jsonl", "enqueue", 9 * S, 10 * S, 10 * S, 11 * S),
        ("producer-1.jsonl", "handle", None, 10 * S, None, 11 * S),
        ("producer-1.jsonl", None, None, 10 * S, None, None),
    ]
    early, late = -3 * MS, 3 * MS
    found = spark.createDataFrame(rows, schema).withColumns(widened(Run({}, {}, hosts=(HERE, THERE)))).select(*names).collect()
    assert [tuple(row) for row in found] == [
        rows[0],
        ("producer-1.jsonl", "enqueue", 9 * S + early, 10 * S + early, 10 * S + early, 11 * S + late),
        ("producer-1.jsonl", "handle", None, 10 * S + early, None, 11 * S + early),
        ("producer-1.jsonl", None, None, 10 * S + early, None, None),
    ]
    assert widened(Run({}, {}, hosts=(HERE,))) == {}


@pytest.mark.parametrize("hosts_of_run", [(HERE, THERE), (HERE,)], ids=["there", "here"])
def test_the_processor_of_a_producer_on_another_host_is_not_judged(hosts_of_run: tuple[Host, ...]) -> None:
    file = file_facts.FileFacts("producer-1.jsonl", enqueue_first_ns=10 * S, enqueue_last_ns=20 * S)
    run = Run({}, {file.name: file}, (Process("producer-1", "producer", file.name),), hosts=hosts_of_run)
    unsampled, away = "the CPU of producer-1 was not sampled while there was load", len(hosts_of_run) > 1
    assert (unsampled in H3.doubts(run)) is not away
    assert H3.not_judged(run) == (["the CPU of producer-1, on other hosts"] if away else [])
    # Where it was sampled after all, it is held to its bound.
    sampled = Run(run.spec, run.files, run.processes, hosts=hosts_of_run, cpu={"producer-1": (Usage(11 * S, 12 * S, 0.95),)})
    assert any("used 95% of a core" in doubt for doubt in H3.doubts(sampled)) and H3.not_judged(sampled) == []


@pytest.mark.slow
def test_what_a_subscriber_did_in_turn_is_in_turn_on_another_host(tmp_path: Path, checked: Checked) -> None:
    """It acknowledges within the error of its clock after its call of fetch has returned, which is not before that."""
    history = History(good_channels.healthy(tmp_path / "run").write(closed=good_channels.END_S), random.Random(1))
    for name, trip_ns in (("harness", MS), (good_channels.S2, 8 * MS)):
        rows = history.files[f"{name}.jsonl"]
        for second in range(1, round(good_channels.END_S)):
            sent_ns = story.ns(second)
            times = {"first_send_ns": sent_ns, "done_ns": sent_ns + trip_ns, "t_ns": sent_ns + trip_ns}
            rows.insert(1, {**rows[0], "kind": "offset", **times, "srv_us": steady(sent_ns + trip_ns // 2)})
    history.on_another_host(good_channels.S2, lambda at_ns: at_ns + 2 * S)
    history.write(tmp_path / "away")
    assert hosts_of(history_files(tmp_path / "away"))[1].error_ns > 4 * MS
    found = checked(tmp_path / "away", *CHANNEL_CHECKS)
    assert {check: told for check, told in found.items() if told[0] != "valid"} == {}
