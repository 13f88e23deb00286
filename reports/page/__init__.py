"""The page of a run: `report.html`, one self-contained file that opens from disk, and `figures/*.png`.

The verdict is decided before a page is drawn, and nothing here can change it. Spark aggregates and matplotlib draws; the cost
of a page grows with the seconds of a run, not with its jobs. Both are imported only when a page is drawn.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reports.frames import AnyFrames
    from reports.page.chapter import Chapter

FILE = "report.html"
FIGURES = "figures"


def withdraw(run: Path) -> None:
    """Remove an older page, so that none contradicts the new verdict. Raises OSError."""
    (run / FILE).unlink(missing_ok=True)
    if (run / FIGURES).is_dir():
        shutil.rmtree(run / FIGURES)


def write_report(run: Path, decided: Mapping[str, Any], frames: AnyFrames | None) -> None:
    """Write the page of a run whose verdict is `decided`. `frames` is None for a run that could not be judged.

    The Spark session behind the frames must be alive. Raises when it cannot be written; then there is no page at all.
    """
    from reports.page.document import document

    withdraw(run)
    drawn: list[Chapter] = []
    if frames is not None:
        from reports.page.chapters import chapters

        drawn = chapters(run, decided, frames)
    fresh = run / f"{FILE}.new"
    try:
        # A lone surrogate in a spec cannot be encoded, so it is written as an escape.
        fresh.write_text(document(run, decided, drawn), "utf-8", "backslashreplace")
        save_pictures(run / FIGURES, {chapter.name: chapter.png for chapter in drawn if chapter.png})
        fresh.replace(run / FILE)
    except BaseException:
        fresh.unlink(missing_ok=True)
        withdraw(run)
        raise


def save_pictures(folder: Path, pictures: Mapping[str, bytes]) -> None:
    """Write the figures also as separate files, for slides and mails."""
    if pictures:
        folder.mkdir(exist_ok=True)
    for name, png in pictures.items():
        (folder / f"{name}.png").write_bytes(png)
