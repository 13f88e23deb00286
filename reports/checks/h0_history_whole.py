"""H0: the history is whole. Whatever a check concludes from a row that is not there depends on it.

Each file of the manifest is there and no other; lines are numbered from 0 without gaps; the first row opens the file and the
last closes it with the right number of rows. A killed process is excused from closing and from finishing its last line (rule
32). All monotonic times are of one boot. Then there is something to judge: enqueues, claims and finishes that succeeded.
"""

from __future__ import annotations

from reports.checks.base import Check
from reports.facts import FileFacts, Run

MANIFEST = "manifest.jsonl"


def doubts(run: Run) -> list[str]:
    """Everything that keeps the history from being believed."""
    return holes(run) + idle(run)


def holes(run: Run) -> list[str]:
    """Rows that are missing or unreadable: what is absent then proves nothing."""
    declared = {process.file for process in run.processes} | {MANIFEST}
    found = [] if MANIFEST in run.files else [f"history file {MANIFEST} is missing"]
    found += [
        f"history file {name} is declared in the manifest and missing" for name in sorted(declared - set(run.files) - {MANIFEST})
    ]
    if MANIFEST in run.files:
        found += [f"history file {name} is not declared in the manifest" for name in sorted(set(run.files) - declared)]
    excused = {process.file for process in run.processes if process.name in run.killed}
    for file in run.files.values():
        found += file_holes(file, killed=file.name in excused)
    if len(run.boot_ids) > 1:
        found.append(f"the history spans {len(run.boot_ids)} boots: their monotonic times do not compare")
    return found


def file_holes(file: FileFacts, *, killed: bool) -> list[str]:
    """What is wrong with one file."""
    name, found = f"history file {file.name}", list[str]()
    corrupt = file.corrupt - (file.torn_corrupt and killed)
    if corrupt > 0:
        found.append(f"{name} has {corrupt} corrupt {'line' if corrupt == 1 else 'lines'}")
    if file.torn and not killed:
        found.append(f"{name} ends in mid-line, and its process was not killed")
    rows = file.rows - file.corrupt
    if rows <= 0:
        return found or [f"{name} is empty"]
    if not found and (file.seq_min != 0 or file.seq_max != rows - 1 or file.seq_sum != rows * (rows - 1) // 2):
        found.append(f"{name} has {rows} rows numbered {file.seq_min} to {file.seq_max}: rows are missing")
    if file.first_kind != "open":
        found.append(f"{name} does not start with its open row")
    if file.close_rows is None:
        if not killed:
            found.append(f"{name} has no close row, and its process was not killed")
    elif file.last_kind != "close":
        found.append(f"{name} has rows after its close row")
    elif file.close_rows != rows and not found:
        found.append(f"{name} has {rows} rows, its close row says {file.close_rows}")
    return found


def idle(run: Run) -> list[str]:
    """Operations that never succeeded: a run in which nothing happened is no pass."""
    if not any(file.operations for file in run.files.values()):
        return ["the history holds no operation"]
    wanted = (("created", "no enqueue"), ("leased", "no claim"), ("finished", "no finish"))
    return [f"{words} ever succeeded" for flag, words in wanted if not run.has(flag)]


CHECK = Check("H0", "the history is whole", doubts)
