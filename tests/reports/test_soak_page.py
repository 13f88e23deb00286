"""The page of a soak: its figures and lines, and what is said of one that was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.command import main
from reports.page import ink
from reports.soak.page import document, draw


def line(what: str, unit: str, per_minute: float | None, half: float = 0.1, *, at: float = 50.0) -> dict[str, Any]:
    """A line over an hour with a sample every ten seconds; without a slope one that was not measured."""
    points = [[10.0 * number, at + (per_minute or 0.0) * number / 6] for number in range(360)]
    known = per_minute is not None
    return {
        "what": what,
        "unit": unit,
        "per_minute": per_minute,
        "interval": [per_minute - half, per_minute + half] if per_minute is not None else None,
        "first": at if known else None,
        "last": at + 60 * (per_minute or 0) if known else None,
        "samples": 354 if known else 0,
        "complaint": "" if known else "3 samples, it needs 354",
        "points": points if known else points[:3],
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a soak."""
    lines = [
        line("memory of worker-1", "MB", 0.02),
        line("used_memory of the server", "MB", 2.5, at=20),
        line("median of latency", "ms", 0.5, half=0.3),
        line("p99 of latency", "ms", None),
    ]
    content = {"schema": 1, "id": "20261127-000000-soak-seed1", "warm_up_s": 60.0, "total_s": 3_600.0, "lines": lines}
    (tmp_path / "soak.json").write_text(json.dumps(content))
    return tmp_path


def test_the_page_shows_memory_latency_and_their_growth(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", str(run)]) == 0
    assert capsys.readouterr().out.strip() == f"page: {run / 'soak.html'}"
    page = (run / "soak.html").read_text()
    assert "Soak of 60 minutes" in page and page.count("<svg") == 2
    assert "3 samples, it needs 354" in page and "<script" not in page
    assert page == document(json.loads((run / "soak.json").read_text()))


def test_a_line_is_drawn_within_its_interval(run: Path) -> None:
    found = json.loads((run / "soak.json").read_text())
    with ink.drawing():
        panel = draw(found, "MB").axes[0]
    # Of each figure its samples and its line, from the end of the warm-up to the end.
    assert len(panel.lines) == 4
    begin, middle, end = np.asarray(panel.lines[3].get_xydata())
    assert begin[0] == pytest.approx(1) and end[0] == pytest.approx(60)
    assert end[1] - begin[1] == pytest.approx(2.5 * 59) and middle[1] == pytest.approx(20 + 2.5 * 30)
    with ink.drawing():
        panel = draw(found, "ms").axes[0]
    # What was not measured has its samples alone.
    assert len(panel.lines) == 3


def test_what_is_no_soak_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", str(tmp_path)]) == 2
    assert "soak.json" in capsys.readouterr().err
