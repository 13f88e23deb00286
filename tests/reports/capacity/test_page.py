"""The page in headless Chromium: its script alone runs, the sliders compute the plan, and it reads everywhere."""

import json
from pathlib import Path

import pytest

from reports.capacity.page import RESULTS
from reports.command import main
from tests.reports.browser import Browser
from tests.reports.capacity.planted import asked, content, saturated, write
from tests.reports.test_page_browser import CONTRAST, SHARED_IDS, STICKING_OUT, UNSAID

pytestmark = pytest.mark.slow

#: Move a slider to a value, as a hand does.
MOVE = """
const input = document.querySelector('#sliders input[name={name}]');
input.value = input.dataset.log ? Math.log10({value}) : {value};
input.dispatchEvent(new Event('input', {{bubbles: true}}));
"""

#: Answers that the sliders must give as the command does.
QUESTIONS = (
    {"rate": 300.0},
    {"rate": 2_000.0, "payload_bytes": 8_000.0, "backlog_s": 60.0},
    {"rate": 700.0, "handler_ms": 55.0, "worker_utilisation": 0.6, "server_utilisation": 0.05, "retained_s": 10.0},
)


@pytest.fixture(scope="module", params=["law", pytest.param("refused", marks=pytest.mark.slow)])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a measurement with a fit, and of one whose fit was refused."""
    made = content(saturated) if request.param == "refused" else content()
    made["machine"]["cpu"] = "</script><script>document.title = 'broken'</script>"
    made["target"]["model"] = "</script><b>lanes"
    run = write(tmp_path_factory.mktemp("page"), made)
    assert main(["capacity", str(run), "--rate", "500"]) == 0
    return run / "capacity.html"


def test_its_own_script_runs_and_nothing_else(window: Browser, page: Path) -> None:
    window.open(page)
    assert [address for address in window.requests() if not address.startswith("data:")] == [page.as_uri()]
    assert window.console() == []
    assert window.run("return document.title") == next(
        line[7:-8] for line in page.read_text().splitlines() if line.startswith("<title>")
    )
    window.run("const more = document.createElement('script'); more.textContent = 'window.ran = 1'; document.body.append(more)")
    assert window.run("return window.ran || 0") == 0


def test_the_sliders_compute_what_the_command_does(window: Browser, page: Path) -> None:
    window.open(page)
    for question in QUESTIONS:
        options = [text for name, value in question.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        expected = asked(page.parent, *options)
        computed = window.run(f"return plan({json.dumps(expected['question'])})")
        assert {name: computed[name] for name in RESULTS} == pytest.approx({name: expected["plan"][name] for name in RESULTS})


def test_a_moved_slider_shows_another_plan(window: Browser, page: Path) -> None:
    window.open(page)
    before = int(window.run("return document.getElementById('if-workers').textContent"))
    window.run(MOVE.format(name="rate", value=2_000))
    after = int(window.run("return document.getElementById('if-workers').textContent"))
    assert after > 2 * before and window.run("return document.getElementById('at-rate').textContent") == "2,000"
    assert window.run("return document.getElementById('doubt').textContent") == "Within what was measured."
    window.run(MOVE.format(name="rate", value=100_000))
    assert "only --simulate would answer" in window.run("return document.getElementById('doubt').textContent")
    window.run(MOVE.format(name="p99_ms", value=5))
    assert window.run("return document.getElementById('if-workers').textContent") == "\u2013"
    assert "No plan" in window.run("return document.getElementById('doubt').textContent")


def test_it_can_be_heard(window: Browser, page: Path) -> None:
    window.open(page)
    assert window.run(UNSAID) == [] and window.run(SHARED_IDS) == []
    unnamed = "return Array.from(document.querySelectorAll('input')).filter(one => one.labels.length !== 1).length"
    assert window.run(unnamed) == 0


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("dark", [False, True])
def test_it_reads_in_any_width_and_scheme(window: Browser, page: Path, width: int, dark: bool) -> None:
    window.open(page, width=width, dark=dark)
    assert window.run("return document.documentElement.scrollWidth") <= width
    assert window.run(STICKING_OUT) == [] and window.run(CONTRAST) >= 4.5
