"""The page of a channel run: what it says, its figures and tables, in the source and in headless Chromium."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reports import page, table, verdict
from reports.page import facts, ink, timeline
from reports.page.channels import draw, words
from reports.page.channels.series import ChannelSeries, Clock
from tests.reports.browser import Browser
from tests.reports.channel_runs import FAULTS, busy
from tests.reports.page_runs import judge_aloud, rows_of
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


@pytest.fixture(scope="module")
def measures(run: Path) -> dict[str, Any]:
    return json.loads((run / "verdict.json").read_text())["measures"]


def test_the_head_tells_of_messages_and_wraps(text: str, measures: dict[str, Any]) -> None:
    head = html.unescape(re.sub(r"<[^>]+>", " ", text[text.index("<body>") : text.index("<nav")]))
    assert f"{measures['published']:,} messages were published and delivered {measures['deliveries']:,} times" in head
    assert "The clocks of 5 channels were set shortly before the wrap; 5 of them crossed it under load" in head
    assert "clocks went back 8 times" in head, "each channel once, when the snapshot was restored"
    tiles = re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", text[: text.index("<nav")])
    assert [name for name, _ in tiles] == [
        "published", "deliveries", "subscribers", "lost", "told as lost", "delivered again", "wraps crossed",
    ]  # fmt: skip
    assert tiles[0][1] == f"{measures['published']:,}" and tiles[-1][1] == "5 of 5"
    assert "finished exactly once" not in text and "jobs/s" not in text and words.FOOTER in text


def test_every_figure_is_there_with_its_numbers(text: str, run: Path) -> None:
    assert re.findall(r'<section id="([^"]+)"><h2>[^<]*</h2>\s*<p>(?:(?!<section).)*?<svg', text, flags=re.S) == DRAWN
    assert "could not be drawn" not in text
    for name in DRAWN:
        assert (run / page.FIGURES / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
        rows = rows_of(text, name)
        assert rows and all(len(row) == len(rows[0]) > 2 for row in rows), name


def test_each_channel_crosses_and_goes_back_in_its_table(text: str, measures: dict[str, Any]) -> None:
    lines = {row[0]: row for row in rows_of(text, "channels")}
    assert set(lines) == {line["channel"] for line in measures["channels"]} and len(lines) == 8
    assert [lines[f"wrap-{number}"][6] for number in (1, 2, 3)] == ["1", "1", "1"] and lines["fan-1"][6] == "&ndash;"
    assert {row[7] for row in lines.values()} == {"1"}
    clocks = [row for row in rows_of(text, "clocks") if row[0] == "wrap-1"]
    assert (
        [row[2] for row in clocks] == ["0", "1"] and clocks[0][4].startswith("9007199254740") and clocks[0][6].startswith("-9007")
    )
    assert float(clocks[0][7]) > 0 and clocks[1][7] == "&ndash;"


def test_bands_begin_with_the_fault_not_with_its_snapshot(text: str) -> None:
    (restore,) = [row for row in rows_of(text, "faults") if "snapshot-restore" in row[0]]
    assert float(restore[2]) == pytest.approx(20 * FAULTS[-1][2], abs=0.1)


def test_names_that_are_markup_stay_text(text: str) -> None:
    assert "<script" not in text.lower() and html.escape(HOSTILE) in text


def test_the_printed_table_is_about_messages(run: Path) -> None:
    printed = table.render(json.loads((run / "verdict.json").read_text()))
    assert "wraps crossed" in printed and "5 of 5" in printed and "fan-out 10" in printed and "jobs" not in printed


def test_what_is_not_known_is_said() -> None:
    decided = {"measures": {**verdict.NO_MEASURES}}
    assert words.story(decided)[0] == "It cannot be told what was published and delivered."
    missed = {**verdict.NO_MEASURES, "published": 2, "deliveries": 1, "wraps_crossed": 0, "wrap_channels": 1}
    assert words.story({"measures": missed})[0].endswith("it cannot be told whether any was lost.")
    assert '<div class="unsure"><dt>wraps crossed</dt><dd>0 of 1</dd></div>' in words.tiles(missed)
    assert '<div class="bad"><dt>lost</dt><dd>3</dd></div>' in words.tiles(missed | {"lost": 3})
    spec = {"id": "x", "seed": 7, "scenario": "channels", "model": "dsps"}
    assert facts.again(Path("x"), spec).endswith("python -m chaos run channels --seed 7</pre>")


def test_a_line_changes_its_colour_where_it_crosses() -> None:
    """Blue up to the wrap, green beyond it; one mark on the wrap, at the instant of the crossing."""
    one = Clock("one", "fan-out 1", ((0.0, 0, -2), (2.0, 0, 0), (4.0, 0, 3), (6.0, 1, 2)), (3.0,), near=True)
    series = ChannelSeries(("fan-out 1",), (one,), {}, {}, {})
    with ink.drawing():
        (panel,) = draw.clocks(series, [], timeline.Axis(0, 10_000_000_000, 1), []).axes
    lines = {line.get_color(): points_of(line) for line in reversed(panel.get_lines())}
    assert (lines[ink.BLUE], lines[ink.GREEN]) == ([(0, -2), (2, 0), (3, 0)], [(3, 0), (4, 3)])
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
