"""The page of all runs and that of a comparison in headless Chromium: quiet, on their own, readable everywhere."""

from pathlib import Path

import pytest

from reports.command import main
from reports.compare.command import PAGE_FILE
from tests.reports.browser import Browser
from tests.reports.repetitions import TYPICAL, judged, sides
from tests.reports.test_page_browser import BROKEN_WORDS, CONTRAST, CUT_OFF, SAID_TO_SCROLL, SHARED_IDS, STICKING_OUT, UNSAID

pytestmark = pytest.mark.slow

#: Whether the column of drawings has one in each row, and what of it a reader without eyes gets.
DRAWINGS = "return Array.from(document.querySelectorAll('svg.spark'), svg => svg.getAttribute('aria-label'))"


@pytest.fixture(scope="module", params=["list", "compare", "refused"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all runs, one broken and one not judged among them, of a comparison with a claim, and of one with a warning and
    too few runs."""
    folder = tmp_path_factory.mktemp("pages")
    a, b = sides(folder / "runs", 3 if request.param == "refused" else 6, noise=0.01, factor=1.3)
    if request.param == "list":
        (judged(folder / "runs/20260102-000000-bench-seed1", TYPICAL) / "verdict.json").unlink()
        (judged(folder / "runs/20260103-000000-bench-seed1", TYPICAL) / "verdict.json").write_text('{"long": ' + "x" * 500)
        judged(folder / "runs/20260104-000000-bench-seed1-no-reap", TYPICAL, "violated", mutant="no-reap")
        assert main(["list", str(folder / "runs")]) == 0
        return folder / "runs/index.html"
    if request.param == "refused":
        a, b = a[:1], [*b, a[1]]
    arguments = ["compare", "--a", *map(str, a), "--b", *map(str, b), "--any", "--out", str(folder / "out")]
    assert main(arguments) == (2 if request.param == "refused" else 0)
    return folder / "out" / PAGE_FILE


def test_it_is_quiet_and_asks_nobody(window: Browser, page: Path) -> None:
    window.open(page)
    assert window.run("return document.querySelectorAll('script, iframe, object, embed, link[rel=stylesheet]').length") == 0
    assert [address for address in window.requests() if not address.startswith("data:")] == [page.as_uri()]
    assert window.console() == []


def test_it_can_be_heard(window: Browser, page: Path) -> None:
    window.open(page)
    assert window.run(UNSAID) == [] and window.run(SHARED_IDS) == []
    labels = window.run(DRAWINGS)
    assert labels and all(len(label) > 20 for label in labels)


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("dark", [False, True])
def test_it_reads_in_any_width_and_scheme(window: Browser, page: Path, width: int, dark: bool) -> None:
    window.open(page, width=width, dark=dark)
    assert window.run("return document.documentElement.scrollWidth") <= width
    assert window.run(STICKING_OUT) == [] and window.run(BROKEN_WORDS) == [] and window.run(CUT_OFF)[1] == []
    if width == 390:
        assert window.run(SAID_TO_SCROLL) == []
    assert window.run(CONTRAST) >= 4.5
