"""The evidence of a verdict: for each violation the rows of the history that prove it, with file and line.

A violation is found by Spark, in frames that do not know lines. So its rows are searched for afterwards: those that name its
subject, and the jobs and messages of its sentence. The history is read once for all of them. Violations of the whole run, and
those that rest on rows that are missing, have no rows; that is stated instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.errors import one_line
from reports.evidence.rows import Subject, chosen, line_of, lines_of, names_in, printed, words_of
from reports.evidence.scan import Found, Hit, last_rows, search
from reports.folder import history_files
from reports.lines import INSTANTS
from reports.verdict import EVIDENCE, place

if TYPE_CHECKING:
    from reports.facts import Run

SCHEMA = 1

#: Keys of a row whose values are what violations are about.
OF_JOBS = ("job", "fault")
OF_CHANNELS = ("message", "channel", "subscriber", "fault")

#: This many names are searched for, which bounds what is kept.
NAMES_MAX = 200

#: Names in the sentence of one violation that are searched for beside its subject.
OTHERS_MAX = 2

#: The verdict holds this many lines for the first violation of a check; a process has this many of its last rows.
PRINTED_MAX = 8
LAST_ROWS = 20


def collect(run: Path, decided: dict[str, Any], facts: Run, say: Callable[[str], None]) -> None:
    """Write evidence.json, and give each violated check of the verdict the lines of its first violation. A failure is said, and
    changes no verdict."""
    from reports.page.timeline import axis

    try:
        content = gather(run, decided, facts, axis(facts).start_ns)
        place(run / EVIDENCE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    except Exception as error:
        say(f"judge: the evidence of {run.name} cannot be written: {one_line(error)}")
        return
    first = {one["check"]: one for one in reversed(content["violations"]) if one["level"] == "violated"}
    for check in decided["checks"]:
        if one := first.get(check["id"]):
            check["evidence"] = [*printed(chosen(one["rows"], PRINTED_MAX)), *([one["note"]] if one["note"] else [])]


def read(run: Path) -> list[dict[str, Any]]:
    """The violations in evidence.json; none when there is no such file."""
    try:
        return json.loads((run / EVIDENCE).read_text("utf-8"))["violations"]
    except FileNotFoundError:
        return []


def gather(run: Path, decided: Mapping[str, Any], facts: Run, start_ns: int) -> dict[str, Any]:
    """The content of evidence.json: one entry for each example of a violated or unknown check. `start_ns`: when the load began.

    Raises JudgeError and OSError when the history cannot be read.
    """
    files = history_files(run)
    processes = frozenset(process.name for process in facts.processes)
    examples = list(examples_of(decided))
    plan = [needed(one, processes, channels=facts.of_channels) for one in examples]
    names = list(dict.fromkeys(name for needs in plan for name in needs))[:NAMES_MAX]
    found = search(files, names, OF_CHANNELS if facts.of_channels else OF_JOBS)
    on_one_clock([hit for one in found.values() for hit in one.hits], facts)
    entries = [entry(one, needs, found, start_ns) for one, needs in zip(examples, plan, strict=True)]
    for one in entries:
        if one["subject"] in processes:
            one.update(last_words(run, one["subject"], start_ns, facts))
    return {"schema": SCHEMA, "violations": entries}


def examples_of(decided: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The examples of the checks that are not valid: first those of violated checks, the first of each before the second."""
    for level in ("violated", "unknown"):
        checks = [check for check in decided["checks"] if check["verdict"] == level]
        columns = [list(zip(check["examples"], check["subjects"], strict=True)) for check in checks]
        if level == "violated":
            columns = [column[: check["violations"]] for column, check in zip(columns, checks, strict=True)]
        for row in zip_longest(*columns):
            for check, found in zip(checks, row, strict=True):
                if found:
                    yield {"check": check["id"], "level": level, "example": found[0], "subject": found[1]}


def needed(example: Mapping[str, str], processes: frozenset[str], *, channels: bool) -> list[str]:
    """The names to search for: of a subscriber its own, as rows do not hold it together with its channel."""
    subject = example["subject"]
    sentence = example["example"].removeprefix(subject)
    others = names_in(sentence, processes | {subject})[:OTHERS_MAX]
    own = subject.rpartition("/")[2] if channels else subject
    return [*([] if subject in processes else [own]), *others]


def entry(example: Mapping[str, str], needs: Sequence[str], found: Mapping[str, Found], start_ns: int) -> dict[str, Any]:
    """The entry of one example in evidence.json."""
    subject = Subject(example["subject"], words_of(example["example"].removeprefix(example["subject"])))
    hits = [hit for name in needs if name in found and not found[name].common for hit in found[name].hits]
    lines = lines_of(hits, subject, start_ns)
    rows = chosen(lines)
    return {**example, "rows": rows, "left_out": len(lines) - len(rows), "note": "" if rows else absence(needs, found)}


def absence(needs: Sequence[str], found: Mapping[str, Found]) -> str:
    """Why a violation has no rows."""
    if any(name not in found for name in needs):
        return f"its rows were not searched for, because the other violations have {NAMES_MAX} names"
    if any(found[name].common for name in needs):
        return "too many rows name it to tell which of them prove it"
    return "no row is about it alone: it is about the run as a whole, or about rows that are missing"


def on_one_clock(hits: Sequence[Hit], facts: Run) -> None:
    """Move the times of rows of other hosts to the harness's clock."""
    away = {name: host for host in facts.hosts if host.at_ns for name in host.files}
    rows = {id(hit.row): (hit.row, away[hit.file]) for hit in hits if hit.file in away}
    for row, host in rows.values():
        row.update({name: int(host.moved(row[name])) for name in INSTANTS if row.get(name) is not None})


def last_words(run: Path, process: str, start_ns: int, facts: Run) -> dict[str, Any]:
    """The rows and the note of a violation by a process: its last rows."""
    file = run / "history" / f"{process}.jsonl"
    hits = last_rows(file, LAST_ROWS) if file.exists() else []
    on_one_clock(hits, facts)
    return {
        "rows": [line_of(hit, start_ns) for hit in hits],
        "note": "these are the last rows of the process" if hits else "the process has no rows",
    }
