"""The page of a channel run: what it says, its figures and tables, in the source and in headless Chromium."""

import html
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reports import page
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
