"""Schedules where the system has no zone files: the package tzdata has them, and without it an error names it."""

import os
import subprocess
import sys

import pytest

from engine import Queue, Scheduler
from tests.engine.using import at_work, wait_until

#: Begins as a machine without zone files does; `tzdata` is as good as not installed.
BLIND = "import sys; sys.modules['tzdata'] = None\n"

TICKS = """
from engine.calendar import calendar
from engine.ops.schedules import Timing
for zone in ("UTC", "Europe/Berlin"):
    print(calendar(Timing(cron="30 2 * * *", zone=zone)).after(1_774_738_800_000, 0))
"""

REFUSED = """
from engine import Malformed, Queue
queue = Queue("q", url="redis://127.0.0.1:1")
try:
    queue.schedules.put("s", "clean", None, cron="0 3 * * *", zone="Europe/Berlin")
except Malformed as error:
    print(error)
"""

SCHEDULER = """
from engine import Queue, Scheduler
Scheduler(Queue("q", url=sys.argv[1]), sweep_ms=20).run()
"""


def blind(text: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python without zone files of the system."""
    environment = {**os.environ, "PYTHONTZPATH": ""}
    return subprocess.Popen([sys.executable, "-c", text, *arguments], env=environment, stdout=subprocess.PIPE, text=True)


def said(text: str) -> list[str]:
    with blind(text) as process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return output.splitlines()


@pytest.mark.feature("MQ08")
def test_the_package_tzdata_does_in_place_of_the_systems_zone_files() -> None:
    pytest.importorskip("tzdata")
    # On 2026-03-29 Berlin has no 02:30; it ticks at 03:00, which is 01:00 UTC.
    assert said(TICKS) == ["1774751400000", "1774746000000"]


def test_without_zone_files_utc_ticks_and_other_zones_are_refused_with_the_name_of_the_package() -> None:
    assert said(BLIND + TICKS.replace('("UTC", "Europe/Berlin")', '("UTC",)')) == ["1774751400000"]
    (line,) = said(BLIND + REFUSED)
    assert line.startswith("zone: ") and "Europe/Berlin" in line and "tzdata" in line


@pytest.mark.slow
def test_a_scheduler_without_zone_files_leaves_a_zone_to_those_that_have_it(queue: Queue, ironclaim_url: str) -> None:
    queue.schedules.put("theirs", "clean", None, cron="* * * * * *", zone="Europe/Berlin")
    queue.schedules.put("ours", "clean", None, every_ms=1000)

    def state(name: str) -> tuple[int, str]:
        known = queue.schedules.get(name)
        assert known is not None
        return known.count, known.error

    process = blind(BLIND + SCHEDULER, ironclaim_url)
    try:
        wait_until(lambda: state("ours")[0] >= 2, "the schedule that it can read ticks")
        assert state("theirs") == (0, "")
        with at_work(Scheduler(queue)):
            wait_until(lambda: state("theirs")[0] > 0, "the schedule of another zone ticks")
        assert state("theirs")[1] == ""
    finally:
        process.kill()
        process.communicate()
