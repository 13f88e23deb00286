"""`python -m reports nights`: the page of the last nights, cells by nights with the colour of each verdict.

What each night was and how it ended was written by `python -m chaos campaign nightly`; this shows it, and links the report of
each run that is still there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from reports.errors import JudgeError
from reports.page import FILE as REPORT
from reports.page.facts import laid
from reports.page.html import SIGNS, Section, cell, header, marked_up, page, safe, spark, thinned
from reports.table import grid
from reports.verdict import place

FILE = "nightly.json"
PAGE_FILE = "index.html"

SCHEMA = 1

TITLE = "The last nights"
VERDICTS = ("valid", "unknown", "violated")

#: A table shows so many nights, the newest first.
NIGHTS_MAX = 31


@dataclass(frozen=True, slots=True)
class Night:
    """One night: the folder of its runs, its date, its commit, and each cell by its name."""

    folder: Path
    date: str
    commit: str
    line: str
    cells: dict[str, dict[str, Any]]

    @property
    def counts(self) -> Counter[str]:
        """How many cells have each verdict."""
        return Counter(one["verdict"] for one in self.cells.values())


def last_nights(folder: Path) -> str:
    """Write the page of all nights of a folder, and return the newest ones as text; one that cannot be read is left out and
    named. Raises JudgeError when the folder cannot be read, has no night that can, or the page cannot be written."""
    try:
        folders = sorted((path for path in folder.iterdir() if (path / FILE).is_file()), key=lambda path: path.name)
    except OSError as error:
        raise JudgeError(f"folder {folder}: {error.strerror or error}") from error
    if not folders:
        raise JudgeError(f"folder {folder} has no night: none of its folders has a {FILE}")
    found: list[Night] = []
    broken: list[str] = []
    for path in reversed(folders):
        try:
            found.append(read(path))
        except JudgeError as error:
            broken.append(str(error))
    if not found:
        raise JudgeError(broken[0])
    found = found[:NIGHTS_MAX]
    place(folder / PAGE_FILE, document(found, folder))
    return "\n".join(
        ["", *table(found), *(f"left out: {why}" for why in broken), "", f"nights: {len(found)} in {folder / PAGE_FILE}"]
    )


def read(folder: Path) -> Night:
    """One night. Raises JudgeError when its file cannot be read or is of another schema."""
    try:
        found = json.loads((folder / FILE).read_text("utf-8"))
        if found["schema"] != SCHEMA:
            raise JudgeError(f"{FILE} of {folder.name} is not of schema {SCHEMA}")
        cells = {one["cell"]: one for one in found["cells"]}
        return Night(folder, found["date"], found["git_commit"], found["line"], cells)
    except OSError as error:
        raise JudgeError(f"{FILE} of {folder.name}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JudgeError(f"{FILE} of {folder.name} is not a night: {type(error).__name__}: {error}") from error


def table(nights: Sequence[Night]) -> list[str]:
    """The counts of each night as text."""
    body = [
        [one.folder.name, str(len(one.cells)), *(str(one.counts[verdict]) for verdict in VERDICTS), one.commit[:8]]
        for one in nights
    ]
    return grid("the last nights, the newest first", ("night", "cells", *VERDICTS, "commit"), body, right=(1, 2, 3, 4))


def document(nights: Sequence[Night], folder: Path) -> str:
    """The whole page. `nights`: the newest first."""
    newest = nights[0]
    tiles = [("nights", cell(len(nights)), ""), ("cells", cell(len(newest.cells)), "")]
    tiles += [
        (verdict, cell(newest.counts[verdict]), ' class="bad"' if verdict == "violated" and newest.counts[verdict] else "")
        for verdict in VERDICTS
    ]
    sections = [Section("cells", "Cells by nights", by_nights(nights, folder)), Section("nights", "Every night", every(nights))]
    return page(TITLE, header("plain", f"newest: {newest.folder.name}", TITLE, laid(tiles)), sections, main="wide")


def by_nights(nights: Sequence[Night], folder: Path) -> str:
    """A row for each cell, a column for each night."""
    names = list(dict.fromkeys(name for night in nights for name in sorted(night.cells)))
    # Month and day: the year stands in the other table.
    heads = ("cell", "valid", *(night.folder.name.partition("-")[2] for night in nights))
    rows = [[safe(name), trend(name, nights), *(verdict_of(name, night, folder) for night in nights)] for name in names]
    note = (
        "<p>A cell is a model on a topology with a durability. Each night has its own seed and faults; a sign leads to the "
        "report of the run, as long as that is kept, and shows faults and reason when it is pointed at.</p>"
    )
    return note + marked_up("Verdicts, the newest night first", heads, rows)


def trend(name: str, nights: Sequence[Night]) -> str:
    """How many of its nights were valid."""
    verdicts = [night.cells[name]["verdict"] for night in nights if name in night.cells]
    return f"{verdicts.count('valid')} of {len(verdicts)}"


def verdict_of(name: str, night: Night, folder: Path) -> str:
    """The verdict of a cell in a night, with a link to its report; a dash where it was not drilled."""
    found = night.cells.get(name)
    if found is None:
        return "&ndash;"
    verdict = str(found["verdict"])
    tone = verdict if verdict in VERDICTS else "unknown"
    faults = ", ".join(map(str, found["faults"])) or "no fault"
    about = f"{verdict}, seed {found['seed']}, {faults}" + (f". {found['reason']}" if found["reason"] else "")
    badge = f'<span class="badge {tone}" role="img" aria-label="{safe(verdict)}" title="{safe(about)}">{SIGNS[tone]}</span>'
    report = night.folder / str(found["run"]) / REPORT
    if not found["run"] or not report.is_file():
        return badge
    return f'<a href="{safe(quote(report.relative_to(folder).as_posix()))}">{badge}</a>'


def every(nights: Sequence[Night]) -> str:
    """A row for each night, and how the share of valid cells went."""
    shares = [100 * night.counts["valid"] / max(1, len(night.cells)) for night in reversed(nights)]
    words = f"valid cells from the oldest to the newest night: {shares[0]:.0f} % to {shares[-1]:.0f} %"
    drawn = f"<p>{spark(thinned(shares), words)} {safe(words)}</p>" if len(shares) > 1 else ""
    rows: list[list[str]] = []
    for night in nights:
        reasons = [safe(one["reason"]) for one in night.cells.values() if one["reason"]]
        counted = [cell(len(night.cells)), *(cell(night.counts[verdict]) for verdict in VERDICTS)]
        rows.append([safe(night.folder.name), *counted, safe(night.commit[:8]), "<br>".join(reasons)])
    return drawn + marked_up("The nights", ("night", "cells", *VERDICTS, "commit", "not valid"), rows, words=(5, 6))
