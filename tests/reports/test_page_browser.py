"""The page in headless Chromium, from disk: it is quiet, asks nobody for anything, and can be read on a phone and in the dark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reports import page
from tests.engine.helpers.waiting import wait_until
from tests.reports.browser import Browser
from tests.reports.page_runs import hostile_page

#: What the browser is asked of a page.
SCRIPTS = {path.stem.upper(): path.read_text("utf-8") for path in Path(__file__).with_name("scripts").glob("*.js")}
FIGURES, UNSAID, SHARED_IDS, STICKING_OUT = (SCRIPTS[name] for name in ("FIGURES", "UNSAID", "SHARED_IDS", "STICKING_OUT"))
CUT_OFF, SAID_TO_SCROLL, BROKEN_WORDS = (SCRIPTS[name] for name in ("CUT_OFF", "SAID_TO_SCROLL", "BROKEN_WORDS"))
CONTRAST = SCRIPTS["CONTRAST"]


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a violated run, whose names are markup: it has every chapter."""
    return hostile_page(spark, tmp_path_factory) / page.FILE


def test_the_browser_sees_what_a_bad_page_does(window: Browser, tmp_path: Path) -> None:
    """Were it blind, the tests below would pass for ever."""
    bad = tmp_path / "bad.html"
    bad.write_text("<body onload='nobody()'><img src='http://127.0.0.1:9/a.png'><script>console.error('oh')</script>")
    window.open(bad)
    said: list[str] = []
    wait_until(lambda: said.extend(window.console()) or len(said) >= 3, "three complaints")
    assert len(said) == 3 and "http://127.0.0.1:9/a.png" in window.requests()


@pytest.mark.slow
def test_nothing_leaves_the_file_and_the_console_is_silent(window: Browser, report: Path) -> None:
    window.open(report)
    assert window.run("return document.readyState") == "complete"
    assert window.run("return document.querySelectorAll('script, iframe, object, embed, link[rel=stylesheet]').length") == 0
    assert [address for address in window.requests() if not address.startswith("data:")] == [report.as_uri()]
    assert window.console() == []


@pytest.mark.slow
def test_each_figure_has_its_numbers(window: Browser, report: Path) -> None:
    window.open(report)
    numbers = dict(window.run(FIGURES))
    assert list(numbers) == [
        "first-violation", "phases", "latency", "load", "recovery", "lanes-1", "lanes-2", "offenders", "machine",
    ]  # fmt: skip
    assert all(count >= 3 for count in numbers.values()), numbers


@pytest.mark.slow
def test_it_can_be_heard(window: Browser, report: Path) -> None:
    window.open(report)
    assert (window.run(UNSAID), window.run(SHARED_IDS)) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out(window: Browser, report: Path, width: int) -> None:
    window.open(report, width=width)
    assert window.run("return innerWidth") == width
    assert window.run("return document.documentElement.scrollWidth") <= width
    assert window.run(STICKING_OUT) == []
    some, bare = window.run(CUT_OFF)
    assert bare == [] and (some or width > 360)
    if width == 360:
        assert window.run(SAID_TO_SCROLL) == []
    assert window.run(BROKEN_WORDS) == []


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(window: Browser, report: Path, dark: bool) -> None:
    window.open(report, dark=dark)
    ground = window.run("return getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is not dark and window.run(CONTRAST) >= 4.5
