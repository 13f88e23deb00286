"""Parts of the page that need no Spark: the axis, fault bands, tables, colours, words."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports import page
from reports.facts import MS, Phase, Run, Stage
from reports.page import chapter, html, ink, timeline, words
from reports.page.document import document
from reports.page.draw_lanes import Lease, gone, in_hand_at, mark
from reports.page.facts import checks, tiles
from reports.page.timeline import BUCKETS_MAX, Window, axis, windows
from reports.verdict import NO_MEASURES, undecided
from tests.golden import Told, same, tells

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
    """It begins with the fault, not with the snapshot that is taken for it."""
    of_down = (("snapshot", 8), ("inject", 10), ("witness", 11), ("heal", 14), ("healed", 15))
    stages = [stage("1-net-down", name, at_s) for name, at_s in of_down]
    of_kill = (("inject", 20, True), ("witness", 21, False), ("heal", 25, True))
    stages += [stage("2-worker-kill", name, at_s, ok=ok) for name, at_s, ok in of_kill]
    stages += [stage("3-net-latency", "inject", 30), stage("3-net-latency", "witness", 31)]
    run = run_of(("lead-in", 0), ("end", 60), stages=(*stages, stage("4-net-slow", "inject", 40)))
    down, kill, latency, slow = windows(run, axis(run))
    assert (down.start_s, down.end_s, down.verified, down.label) == (10, 14, True, "down")
    assert (kill.verified, kill.label) == (False, "kill, NOT VERIFIED")
    assert (latency.end_s, latency.verified) == (60, False), "it never healed, so it lasts until the end"
    assert down.targets == ("worker-1", "producer-1") and (slow.name, slow.start_s, slow.verified) == ("net-slow", 40, False)


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
        timeline.shade([panel], found)
        timeline.write(panel, timeline.placed(found, ink.WIDTH_IN, 60))
        boxes = [text.get_window_extent() for text in panel.texts]
        edges = drawn.bbox
    assert len(boxes) == len(spans) and len([patch for patch in panel.patches if patch.get_hatch()]) == 3
    for place, box in enumerate(boxes):
        assert not [other for other in boxes[:place] if box.overlaps(other)]
        assert edges.x0 <= box.x0 and box.x1 <= edges.x1


def test_colours_of_a_figure_follow_the_scheme_of_the_page() -> None:
    assert len({light for light, _ in html.COLOURS.values()}) == len(html.COLOURS)
    with ink.drawing():
        drawn = ink.figure(1.0)
        drawn.add_axes((0.1, 0.1, 0.8, 0.8)).plot([1, 2], [1, 2], color=ink.BLUE, label="$not a formula$")
        drawn.axes[0].legend()
        text = ink.svg(drawn, "here", "words")
    assert "var(--blue)" in text and ink.BLUE not in text and 'aria-label="words"' in text
    # The letters of a formula slant.
    assert "Oblique" not in text
    assert 'id="here-' in text and "<!--" not in text and "<metadata" not in text


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


LOSS = {"fault": "primary-kill", "text": "what no replica had", "avoided_by": "replica"}
FOUND = {
    **{"name": "loss by primary-kill", "text": "what no replica had", "checks": ["J1", "J4"], "rows": 3},
    "examples": ["J1 a is held twice", "J4 b is lost"],
}
LOSSY: dict[str, Any] = {
    "verdict": "valid",
    "spec": {"id": "20260101-000000-bench-seed1", "topology": "sentinel", "durability": "server", "loss": [LOSS]},
    **{"findings": [FOUND], "measures": {**NO_MEASURES, "lost": 1}, "checks": [], "reasons": [], "slo": []},
}


UNSEEN = {**LOSSY, "findings": [{**FOUND, "rows": 0}]}
DEFECT = "a finish is accepted whatever its token"
PLANTED = {"name": "finish-without-token", "defect": DEFECT, "check": "J3", "verdict": "violated"}


def mutant_run(verdict: str) -> dict[str, Any]:
    checks = [check_line("J3", "no stale finish is accepted", verdict, violations=2 if verdict == "violated" else 0)]
    measures = {**NO_MEASURES, "lost": 0, "doubled": 2, "refused_stale": 4, "finished": 9}
    spec = {"id": "x", "mutant": PLANTED["name"], "planted": PLANTED}
    return {"verdict": verdict, "spec": spec, "findings": [], "measures": measures, "checks": checks, "reasons": [], "slo": []}


def check_line(id: str, name: str, verdict: str, **counts: int) -> dict[str, Any]:
    numbers = {"violations": 0, "declared": 0, "possible": 0, **counts}
    return {"id": id, "name": name, "verdict": verdict, **numbers, "examples": [], "why": "", "not_judged": []}


DIRECT_KILL = {"target": "worker-1", "connected": "direct", "jobs": 3, "recovery_ms": 1_874.0, "bound_ms": 11_000}
PROXIED_KILL = {"target": "worker-4", "connected": "proxied", "jobs": 1, "recovery_ms": 9_012.0, "bound_ms": 11_000}


def parts() -> Told:
    """Cells of tables; what is not known; declared loss and planted defects, and of what a page has at its top; recovery."""
    rows = [("<b>", 1_234), ("x", None), ("\u202e\0", 1.5), ("y" * 5_000, True)]
    yield "cells", html.table("a & b", ("<i>", "n"), rows, words=())
    yield "not known", words.story({"measures": {**NO_MEASURES, "enqueued": 10, "lost": None, "doubled": 2, "dropped": 3}})
    shown = checks([check_line("J16", "payloads stay", "valid", possible=1), check_line("J4", "no loss", "valid", declared=2)])
    yield "possible and declared", shown
    losses = {"certain": {**LOSS, "avoided_by": ""}, "unsaid": {"fault": "primary-kill", "text": "x"}}
    lossy = {name: {**LOSSY, "spec": {**LOSSY["spec"], "loss": [loss]}} for name, loss in losses.items()}
    runs = {"lossy": LOSSY, "unseen": UNSEEN, **lossy, **{verdict: mutant_run(verdict) for verdict in ("violated", "valid")}}
    for name, run in runs.items():
        yield name, (words.losses(run), words.title(run), words.headline(run), words.planted(run), words.story(run))
    yield "of older runs", [words.planted({"spec": {"mutant": mutant}, "checks": []}) for mutant in ("no-reap", "")]
    older = {name: value for name, value in DIRECT_KILL.items() if name != "connected"}
    for lines in ([DIRECT_KILL, PROXIED_KILL], [older]):
        yield "recovery", (words.recovery(lines), words.by_way(lines), tiles({**NO_MEASURES, "recovery": lines}))


def test_parts_of_a_page_say_what_they_said() -> None:
    tells("reports/page_parts.txt", parts)


@pytest.mark.parametrize(("run", "name"), [(LOSSY, "lossy"), (UNSEEN, "unseen"), (mutant_run("violated"), "planted")])
def test_what_must_be_seen_first_stands_at_the_top_of_a_page(run: dict[str, Any], name: str, tmp_path: Path) -> None:
    page = document(tmp_path, run, ())
    title, top = re.search("<title>.*</title>", page), re.search("<header.*?</header>", page, re.DOTALL)
    assert title is not None and top is not None and "as they must be" not in page and "promises: handlers run" in page
    same(f"reports/top_{name}.html", f"{title[0]}\n{top[0]}\n")


def test_a_page_that_is_interrupted_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        assert list(tmp_path.glob("report.html*")) == [tmp_path / "report.html.new"], "it is written beside its place"
        raise KeyboardInterrupt

    (tmp_path / page.FIGURES).mkdir()
    page.save_pictures(tmp_path / page.FIGURES, {})
    page.save_pictures(tmp_path / page.FIGURES, {"load": b"old"})
    assert (tmp_path / page.FIGURES / "load.png").read_bytes() == b"old"
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        page.write_report(tmp_path, undecided("nothing to see", {}), None)
    assert not list(tmp_path.iterdir())


def test_a_chapter_that_fails_says_so_in_its_place() -> None:
    def fails(_: object) -> Any:
        raise RuntimeError("the disk is full")

    nothing: Any = None
    (only,) = chapter.guarded(fails, nothing)
    assert only.title == "Missing: fails" and "This could not be drawn: RuntimeError: the disk is full" in only.lead
