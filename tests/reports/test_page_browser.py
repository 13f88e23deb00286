"""The page in headless Chromium, from disk: it is quiet, asks nobody for anything, and can be read on a phone and in the dark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reports import page
from tests.engine.helpers.waiting import wait_until
from tests.reports.browser import Browser
from tests.reports.page_runs import hostile_page

#: For each figure of the page: its anchor, and how many cells of its table have something to read.
FIGURES = """
return Array.from(document.querySelectorAll('figure'), figure => {
  const section = figure.closest('section');
  const cells = Array.from(section.querySelectorAll('details tbody td'));
  return [section.id, cells.filter(cell => cell.textContent.trim() && cell.textContent.trim() !== '\\u2013').length];
});
"""

#: What a reader that cannot see would miss: figures without words, tables without heads or caption, regions without a name.
UNSAID = """
const found = [];
for (const svg of document.querySelectorAll('figure svg'))
  if (svg.getAttribute('role') !== 'img' || (svg.getAttribute('aria-label') || '').length < 20) found.push('svg');
for (const table of document.querySelectorAll('table'))
  if (!table.caption || !table.querySelector('thead th[scope=col]') || !table.querySelector('tbody th[scope=row]'))
    found.push('table');
for (const region of document.querySelectorAll('[role=region]'))
  if (!region.getAttribute('aria-label')) found.push('region');
if (!document.documentElement.lang || !document.title) found.push('page');
return found;
"""

#: Ids that two elements share: then clips and hatches of one figure would be those of another.
SHARED_IDS = """
const ids = Array.from(document.querySelectorAll('[id]'), element => element.id);
return ids.filter((id, place) => ids.indexOf(id) !== place);
"""

#: Elements that stick out of the window, apart from what scrolls by itself.
STICKING_OUT = """
return Array.from(document.querySelectorAll('body *'))
  .filter(element => !element.closest('.scroll, pre, svg, details') && element.getBoundingClientRect().right > innerWidth + 1)
  .map(element => element.tagName + ' ' + element.className);
"""

#: What is cut off at an edge of its region without a sign that it scrolls, and whether anything is cut off at all.
CUT_OFF = """
const cut = Array.from(document.querySelectorAll('.scroll')).filter(region => region.scrollWidth > region.clientWidth);
const bare = cut.filter(region => getComputedStyle(region).backgroundImage === 'none');
return [cut.length > 0, bare.map(region => region.getAttribute('aria-label'))];
"""

#: Regions of which it is said that they scroll and do not, or that scroll and of which it is not said.
SAID_TO_SCROLL = """
return Array.from(document.querySelectorAll('.scroll')).filter(region => region.clientWidth > 0).filter(region => {
  const scrolls = region.scrollWidth > region.clientWidth;
  return scrolls !== (parseFloat(getComputedStyle(region, '::before').maxHeight) > 0);
}).map(region => region.getAttribute('aria-label') || region.innerHTML.slice(0, 80));
"""

#: Cells whose text is wider than they are, or breaks inside of a word.
BROKEN_WORDS = """
return Array.from(document.querySelectorAll('th, dt, .badge, .tiles dd')).filter(cell => cell.clientWidth > 0).filter(cell => {
  const range = document.createRange();
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const word of walker.currentNode.data.matchAll(/[a-z]+/gi)) {
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      if (range.getClientRects().length > 1) return true;
    }
  }
  return false;
}).map(cell => cell.textContent);
"""

#: The contrast between the colour of an element's text and the ground of the page.
CONTRAST = """
const light = colour => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255);
  const [r, g, b] = parts.map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = light(getComputedStyle(document.body).backgroundColor);
const words = 'h1, h2, h3, p, td, th, dt, dd, a, summary, caption, li, span:not(.sign)';
return Array.from(document.querySelectorAll(words), element => {
  const text = light(getComputedStyle(element).color);
  return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
}).reduce((least, one) => Math.min(least, one), 100);
"""


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
