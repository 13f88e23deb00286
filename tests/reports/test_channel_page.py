"""The page of a channel run: what it says, its figures and tables, in the source and in headless Chromium."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reports import page
from reports.page import ink
from reports.page.channels import draw
from reports.page.channels.series import ChannelSeries, Clock
from reports.page.timeline import Axis
from tests.reports.browser import Browser
from tests.reports.channel_runs import busy
from tests.reports.page_runs import judge_aloud
from tests.reports.test_page_browser import CONTRAST, FIGURES, SHARED_IDS, STICKING_OUT, UNSAID

pytestmark = pytest.mark.slow

#: The figures of the page, in their order.
DRAWN = ["clocks", "phases", "latency", "lag", "rates", "machine"]

#: A group of channels whose name is markup.
HOSTILE = "</title><script>alert(1)</script>"


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A channel run with its page; a group and a phase have names that are markup."""
    made = busy(tmp_path_factory.mktemp("channels") / "run", length_s=20.0, wrapping=5, many=12)
    spec = json.loads((made / "spec.json").read_text())
    spec["channels"][-1]["group"] = HOSTILE
    (made / "spec.json").write_text(json.dumps(spec))
    judge_aloud(made, spark)
    return made


@pytest.fixture(scope="module")
def text(run: Path) -> str:
    return (run / page.FILE).read_text("utf-8")


def test_names_that_are_markup_stay_text(text: str) -> None:
    assert "<script" not in text.lower() and html.escape(HOSTILE) in text


def test_a_line_changes_its_colour_where_it_crosses() -> None:
    """Blue up to the wrap, green beyond it; one mark on the wrap, at the instant of the crossing."""
    one = Clock("one", "fan-out 1", ((0.0, 0, -2), (2.0, 0, 0), (4.0, 0, 3), (6.0, 1, 2)), (3.0,), near=True)
    series = ChannelSeries(("fan-out 1",), (one,), {}, {}, {})
    with ink.drawing():
        (panel,) = draw.clocks(series, [], Axis(0, 10_000_000_000, 1), []).axes
    lines = {line.get_color(): points_of(line) for line in reversed(panel.get_lines())}
    assert lines[ink.BLUE] == [(0, -2), (2, 0), (3, 0)]
    assert lines[ink.GREEN] == [(3, 0), (4, 3)]
    assert lines[ink.AMBER] == [(3, 0)] and lines[ink.PURPLE] == [(4, 3), (6, 2)]
    low, high = panel.get_ylim()
    assert low < 0 < high and draw.signed(0) == "wrap"


def points_of(line: Any) -> list[tuple[float, float]]:
    """Where a line of a figure goes."""
    return list(zip(*line.get_data(), strict=True))


def test_a_browser_shows_it_whole_and_asks_nobody(window: Browser, run: Path) -> None:
    report = run / page.FILE
    window.open(report)
    assert [address for address in window.requests() if not address.startswith("data:")] == [report.as_uri()]
    assert window.console() == [] and window.run(UNSAID) == [] and window.run(SHARED_IDS) == []
    numbers = dict(window.run(FIGURES))
    assert list(numbers) == DRAWN and all(count >= 3 for count in numbers.values()), numbers


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)])
def test_it_can_be_read_on_a_phone_and_in_the_dark(window: Browser, run: Path, width: int, dark: bool) -> None:
    window.open(run / page.FILE, width=width, dark=dark)
    assert window.run("return document.documentElement.scrollWidth") <= width
    assert window.run(STICKING_OUT) == [] and window.run(CONTRAST) >= 4.5
