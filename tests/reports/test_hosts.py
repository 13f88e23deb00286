"""The clocks of several hosts: what their measures bound, and what they contradict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports import hosts
from reports.facts import MS
from reports.hosts import Host, hosts_of

S = 1_000 * MS

#: The server's clock at the harness's instant 0.
SERVER_US = 1_700_000_000_000_000

#: When the harness looks at the server's clock.
SECONDS = [float(second) for second in range(61)]

Clock = Callable[[int], int]


class Written:
    """History files of a harness and of a process on another host, in true time: the harness's clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(
        self, name: str, host: str, looks_s: list[float], *, clock: Clock, server: Clock, trip_ns: int, end_s: float
    ) -> Path:
        """A file with an offset row at each of these instants, which took so long and of which the server saw the middle."""
        rows: list[dict[str, Any]] = [{"kind": "open", "role": name, "host": host, "boot_id": host, "t_ns": clock(0)}]
        for look_s in looks_s:
            at_ns = round(look_s * S)
            sent_ns, done_ns = clock(at_ns - trip_ns // 2), clock(at_ns + trip_ns // 2)
            rows.append(
                {"kind": "offset", "t_ns": done_ns, "first_send_ns": sent_ns, "done_ns": done_ns, "srv_us": server(at_ns)}
            )
        rows.append({"kind": "close", "t_ns": clock(round(end_s * S))})
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
        return path


def steady(at_ns: int) -> int:
    """A server's clock that does not jump."""
    return SERVER_US + at_ns // 1_000


def jumping(at_ns: int) -> int:
    """One that goes ahead by an hour at 25 s and back at 35 s."""
    return steady(at_ns) + 3_600_000_000 * (25 * S <= at_ns < 35 * S)


def compared(
    folder: Path, clock: Clock, *, server: Clock = steady, looks_s: list[float] | None = None, trip_ns: int = MS
) -> Host:
    """The other of two hosts, of a minute in which it measured its clock every 10 s, and the harness once a second."""
    written = Written(folder)
    looks_s = [1.0, 10.5, 20.5, 30.5, 40.5, 50.5, 59.0] if looks_s is None else looks_s
    ends = {"server": server, "trip_ns": trip_ns, "end_s": 60.0}
    own = written.file("harness", "here", SECONDS, clock=lambda at_ns: at_ns, **ends)
    other = written.file("producer", "there", looks_s, clock=clock, **ends)
    first, second = hosts_of([other, own])
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


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        (lambda at_ns: at_ns + at_ns // 100, "ms ahead of the harness's between"),
        (lambda at_ns: at_ns - at_ns // 1_000, "ms behind of the harness's between"),
        (lambda at_ns: at_ns + 20 * MS * (at_ns >= 33 * S), "went 20.0 ms ahead of the harness's between"),
        (lambda at_ns: at_ns - 2 * S * (at_ns >= 33 * S), "went 2000.0 ms behind of the harness's between"),
    ],
    ids=["fast", "slow", "a small jump", "a jump back"],
)
def test_a_clock_that_jumps_or_runs_wrong_is_found_and_named_with_its_figures(tmp_path: Path, clock: Clock, words: str) -> None:
    found = compared(tmp_path, clock)
    assert "the clock of host there" in found.trouble and words in found.trouble
    assert f"A drift of {hosts.DRIFT_PPM} ppm" in found.trouble
    # What such a clock shows is off by as much as it moved between two measures, and no check is misled by it.
    assert all(abs(int(found.moved(clock(at_s * S))) - at_s * S) <= found.error_ns for at_s in range(61))


def test_a_slow_round_trip_is_bounded_by_its_neighbours(tmp_path: Path) -> None:
    written, plain = Written(tmp_path), {"clock": lambda at_ns: at_ns, "server": steady, "end_s": 60.0}
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


def test_of_one_host_only_the_first_lines_are_read(tmp_path: Path) -> None:
    written, plain = Written(tmp_path), {"server": steady, "trip_ns": MS, "end_s": 60.0, "clock": lambda at_ns: at_ns}
    files = [written.file(name, "here", [1.0], **plain) for name in ("harness", "worker-1")]
    assert hosts_of(files) == (Host("here", "here", ("harness.jsonl", "worker-1.jsonl")),)
