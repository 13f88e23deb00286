"""Parts of the page that need no Spark: the axis, fault bands, tables, colours, words."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports.facts import MS, Phase, Run, Stage
from reports.page import bands, ink, tables, words
from reports.page.colours import COLOURS
from reports.page.draw_lanes import gone, mark
from reports.page.facts import again
from reports.page.leases import Lease, in_hand_at
from reports.page.timeline import BUCKETS_MAX, Window, axis, windows
from reports.verdict import NO_MEASURES

S = 1_000 * MS


def run_of(*phases: tuple[str, int], stages: tuple[Stage, ...] = ()) -> Run:
    return Run({}, {}, stages=stages, phases=tuple(Phase(name, at_s * S) for name, at_s in phases))


@pytest.mark.parametrize(("length_s", "width_s"), [(1, 1), (80, 1), (600, 1), (601, 2), (86_400, 300), (10_000_000, 16_667)])
def test_a_long_run_has_wider_buckets_not_more(length_s: int, width_s: int) -> None:
    found = axis(run_of(("lead-in", 100), ("end", 100 + length_s)))
    assert (found.width_s, found.start_ns) == (width_s, 100 * S)
    assert length_s <= found.buckets * found.width_s and found.buckets <= BUCKETS_MAX


def test_a_run_without_phases_has_an_axis() -> None:
    assert axis(Run({}, {})).buckets == 1


def stage(fault: str, name: str, at_s: float, *, ok: bool = True) -> Stage:
    return Stage(fault, fault.split("-", 1)[1], name, "worker-1,producer-1", ok, "", round(at_s * S))


def test_a_window_is_verified_when_it_was_seen_to_bite_and_to_heal() -> None:
    stages = [stage("1-net-down", name, at_s) for name, at_s in (("inject", 10), ("witness", 11), ("heal", 14), ("healed", 15))]
    stages += [
        stage("2-worker-kill", "inject", 20),
        stage("2-worker-kill", "witness", 21, ok=False),
        stage("2-worker-kill", "heal", 25),
    ]
    stages += [stage("3-net-latency", "inject", 30), stage("3-net-latency", "witness", 31)]
    run = run_of(("lead-in", 0), ("end", 60), stages=tuple(stages))
    down, kill, latency = windows(run, axis(run))
    assert (down.start_s, down.end_s, down.verified, down.label) == (10, 14, True, "down")
    assert (kill.verified, kill.label) == (False, "kill, NOT VERIFIED")
    assert (latency.end_s, latency.verified) == (60, False), "it never healed, so it lasts until the end"
    assert down.targets == ("worker-1", "producer-1")


@pytest.mark.parametrize(("name", "lines"), [("worker-kill", 1), ("worker-oom", 1), ("worker-freeze", 2), ("app-kill", None)])
def test_lanes_follow_the_jobs_of_each_worker_that_a_fault_stops(name: str, lines: int | None) -> None:
    """A worker that does not survive has no heal in its lane."""
    witness = replace(stage(f"1-{name}", "witness", 11), leases=("k1 3", "k1 4", "k2 5"))
    found = in_hand_at(SimpleNamespace(run=run_of(stages=(witness,))), ())  # type: ignore[arg-type]
    assert found == ({} if lines is None else {f"1-{name}": ["k1", "k2"]})
    window = Window(f"1-{name}", name, "worker-1", 10, 20, verified=True)
    assert gone(Lease("k1", 3, "n", "worker-1", claimed_s=9.0), [window], 30) == (30 if lines is None else 10)
    panel = ink.figure(1.0).add_axes((0.0, 0.0, 1.0, 1.0))
    mark(panel, window, 0.0, 1.0)
    assert lines in (None, len(panel.lines))


def test_names_of_bands_do_not_cover_each_other() -> None:
    """Measured with the letters that are drawn."""
    spans = [(2.0, 3.0), (3.5, 4.0), (4.5, 10.0), (10.5, 11.0), (11.5, 12.0), (58.0, 60.0)]
    found = [Window(str(place), "net-request-lost", "", start, end, place % 2 == 0) for place, (start, end) in enumerate(spans)]
    with ink.drawing():
        drawn = ink.figure(3.0)
        panel = drawn.add_axes((0.0, 0.0, 1.0, 0.5))
        panel.set_xlim(0, 60)
        bands.shade([panel], found)
        bands.write(panel, bands.placed(found, ink.WIDTH_IN, 60))
        boxes = [text.get_window_extent() for text in panel.texts]
        edges = drawn.bbox
    assert len(boxes) == len(spans) and len([patch for patch in panel.patches if patch.get_hatch()]) == 3
    for place, box in enumerate(boxes):
        assert not [other for other in boxes[:place] if box.overlaps(other)]
        assert edges.x0 <= box.x0 and box.x1 <= edges.x1


def test_colours_of_a_figure_follow_the_scheme_of_the_page() -> None:
    assert len({light for light, _ in COLOURS.values()}) == len(COLOURS)
    with ink.drawing():
        drawn = ink.figure(1.0)
        drawn.add_axes((0.1, 0.1, 0.8, 0.8)).plot([1, 2], [1, 2], color=ink.BLUE, label="$not a formula$")
        text = ink.svg(drawn, "here", "words")
    assert "var(--blue)" in text and ink.BLUE not in text and 'aria-label="words"' in text
    assert 'id="here-' in text and "<!--" not in text and "<metadata" not in text


def test_cells_of_a_table_are_text() -> None:
    made = tables.table("a & b", ("<i>", "n"), [("<b>", 1_234), ("x", None), ("\u202e\0", 1.5), ("y" * 5_000, True)], words=())
    assert "<caption>a &amp; b</caption>" in made and "&lt;i&gt;" in made and "&lt;b&gt;" in made and "1,234" in made
    assert "&ndash;" in made and "\\u202e\\x00" in made and "1.500" in made and "yes" in made and len(made) < 4_000


def test_what_is_not_known_is_said() -> None:
    told = words.story({"measures": {**NO_MEASURES, "enqueued": 10, "lost": None, "doubled": 2, "dropped": 3}})
    assert told[0] == "Of 10 jobs, it cannot be told how many were lost and 2 were finished twice."
    assert "3 could not be sent in time and were not sent at all." in told and "No fault was injected." in told


def test_the_start_of_the_judge_is_not_slowed() -> None:
    """matplotlib is loaded when a page with figures is drawn, not before; nor is it for a run that cannot be looked at."""
    program = (
        "import sys, tempfile, pathlib, reports.command\n"
        "from reports.page import write_report\n"
        "from reports.verdict import undecided\n"
        "with tempfile.TemporaryDirectory() as folder: write_report(pathlib.Path(folder), undecided('why', {}), None)\n"
        "print('matplotlib' in sys.modules, 'pyspark' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"scenario": "bench", "model": "lanes"}, "make bench SEED=7</pre>"),
        ({"scenario": "bench", "model": "lanes", "mutant": "no-reap"}, "make bench SEED=7 MUTANT=no-reap</pre>"),
        ({"scenario": "bench", "model": "bull", "face": "direct"}, "make bench SEED=7 MODEL=bull</pre>"),
        ({"scenario": "bench", "model": "lanes", "face": "http"}, "make bench SEED=7 FACE=http</pre>"),
        ({"scenario": "bench", "model": "bull", "pace": {"calm_ms": 1}}, "make chaos REPLAY=runs/x</pre>"),
        ({"scenario": "compare", "model": "bull", "pace": {"calm_ms": 1}}, "make bench SEED=7 MODEL=all</pre>"),
        ({"scenario": "compare", "model": "bull"}, "make bench SEED=7 MODEL=all</pre>"),
        ({"scenario": "soak", "model": "lanes"}, "make judge RUN=runs/x</pre>"),
    ],
)
def test_the_page_says_how_to_run_it_again(spec: dict[str, Any], line: str) -> None:
    assert again(Path("x"), {"id": "x", "seed": 7, **spec}).endswith(line)
