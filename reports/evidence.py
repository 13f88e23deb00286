"""The evidence of a verdict: for each violation the rows of the history that prove it, with file and line.

A violation is found by Spark, in frames that do not know lines. So its rows are searched for afterwards: those that name its
subject, and the jobs and messages of its sentence. The history is read once for all of them. Violations of the whole run, and
those that rest on rows that are missing, have no rows; that is stated instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.errors import one_line, row_of
from reports.folder import history_files
from reports.lines import INSTANTS
from reports.verdict import EVIDENCE, place

if TYPE_CHECKING:
    from reports.facts import Run

# Search of history files for names, such as a job id: each file is read once, in blocks, and only lines
# with a hit are parsed.
#
# The values of a few keys are picked out by a regular expression and looked up among the names, so that one
# name or two hundred take the same time: about two seconds for 1 GB.


#: Bytes that are read at a time.
BLOCK_BYTES = 4 * 2**20

#: A name with more hits than this is common: it says nothing about a single violation, and is not searched for any further.
HITS_MAX = 500


@dataclass(frozen=True, slots=True)
class Hit:
    """A row of a history file with its place. `line` counts from 1."""

    file: str
    line: int
    row: dict[str, Any]


@dataclass
class Found:
    """The hits of one name, in the order of files and lines. `common`: there are too many, and some are missing."""

    hits: list[Hit] = field(default_factory=list)
    common: bool = False


def search(files: Sequence[Path], names: Iterable[str], keys: Sequence[str]) -> dict[str, Found]:
    """Name -> the rows in which it is the value of one of these keys, in the row itself or in an item. Raises OSError."""
    found = {name: Found() for name in names}
    wanted = texts_of(found)
    for file in files:
        for before, block in blocks(file):
            if not wanted:
                return found
            for line, text, named in lines_with(block, wanted, keys, before + 1):
                row = row_of(text)
                if row is not None:
                    enter(found, {wanted[one] for one in named}, Hit(file.name, line, row))
            wanted = {text: name for text, name in wanted.items() if not found[name].common}
    return found


def enter(found: dict[str, Found], names: Iterable[str], hit: Hit) -> None:
    """Add a hit to the names that it has, unless they are common by now."""
    for name in names:
        one = found[name]
        one.common = len(one.hits) >= HITS_MAX
        if not one.common:
            one.hits.append(hit)


def texts_of(names: Iterable[str]) -> dict[bytes, str]:
    """The names as JSON writes them, without quotes. Python's recorder escapes what is not ASCII, that of Node does not."""
    forms = ((json.dumps(name, ensure_ascii=escaped)[1:-1], name) for name in names for escaped in (True, False))
    return {text.encode("utf-8", "replace"): name for text, name in forms}


def blocks(file: Path) -> Iterator[tuple[int, bytes]]:
    """The file as blocks of complete lines, each with the number of lines before it. A torn last line is left out."""
    before = 0
    with file.open("rb") as opened:
        while block := opened.read(BLOCK_BYTES):
            if not block.endswith(b"\n"):
                block += opened.readline()
                block = block[: block.rfind(b"\n") + 1] if not block.endswith(b"\n") else block
            yield before, block
            before += block.count(b"\n")


def lines_with(
    block: bytes, texts: Collection[bytes], keys: Iterable[str], first: int
) -> Iterator[tuple[int, bytes, set[bytes]]]:
    """The lines of a block in which a key has one of the texts as its value: number, content and texts of each.

    `first`: the number of the first line.
    """
    starts: dict[int, set[bytes]] = {}
    # A pass for each key: a pattern that begins with a fixed text is searched for several times as fast as one with a choice.
    for key in keys:
        for match in re.finditer(b'"%b": ?"([^"\\\\]*(?:\\\\.[^"\\\\]*)*)"' % key.encode(), block):
            if match[1] in texts:
                starts.setdefault(block.rfind(b"\n", 0, match.start()) + 1, set()).add(match[1])
    counted = 0
    for start, named in sorted(starts.items()):
        first += block.count(b"\n", counted, start)
        counted = start
        yield first, block[start : block.index(b"\n", start)], named


def last_rows(file: Path, count: int) -> list[Hit]:
    """The last rows of a file. Raises OSError."""
    kept: list[tuple[int, bytes]] = []
    for before, block in blocks(file):
        lines = block.splitlines()
        kept += ((before + number, line) for number, line in enumerate(lines[-count:], 1 + max(0, len(lines) - count)))
        kept = kept[-count:]
    rows = [(number, row_of(line)) for number, line in kept]
    return [Hit(file.name, number, row) for number, row in rows if row is not None]


# From rows of the history to lines of evidence: what each row says about the subject of a violation, in
# order of time.


#: Evidence of one violation has at most this many rows.
ROWS_MAX = 40

SECOND_NS = 1_000_000_000


class Subject(NamedTuple):
    """What a violation is about. `name`: a job, fault, channel, or `channel/subscriber`; `words`: the words of its sentence, such
    as tokens, other jobs and messages."""

    name: str
    words: frozenset[str]


def words_of(sentence: str) -> frozenset[str]:
    """The words of a sentence, and the parts of its tokens (fence/nonce)."""
    words = [word.strip(",;:.()'\"") for word in sentence.split()]
    return frozenset(part for word in words for part in (word, *word.split("/")) if part)


def lines_of(hits: Iterable[Hit], subject: Subject, start_ns: int) -> list[dict[str, Any]]:
    """Lines of evidence, in order of time: a completed call once, as its completion. `start_ns`: the zero of their seconds."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for hit in hits:
        for item in items_of(hit.row, subject):
            op = hit.row.get("op")
            key = (hit.file, hit.line if op is None else op, item.get("job") or item.get("message"))
            if key not in found or hit.row.get("type") != "invoke":
                found[key] = row_line(hit, item, subject, start_ns)
    return sorted(found.values(), key=lambda one: (one["at_s"], one["file"], one["line"]))


def items_of(row: Mapping[str, Any], subject: Subject) -> Iterator[Mapping[str, Any]]:
    """The items of a row that are about the subject; an empty one when only the row as a whole is."""
    items = [item for item in row.get("items") or () if isinstance(item, dict)]
    if "channel" in row:
        about = channel_items(row, items, subject)
    else:
        about = [item for item in items if item.get("job") == subject.name or (item.get("job") or "") in subject.words]
        about = about or ([{}] if subject.name == row.get("fault") else [])
    yield from about


def channel_items(row: Mapping[str, Any], items: Sequence[Mapping[str, Any]], subject: Subject) -> list[Mapping[str, Any]]:
    """The messages of a row of a channel that the sentence names; an empty item for another call of the subscriber."""
    channel, subscriber = str(row["channel"]), row.get("subscriber")
    own = f"{channel}/{subscriber}" == subject.name
    if not own and (subscriber or f"{channel}/" != subject.name[: len(channel) + 1]) and channel != subject.name:
        return []
    named = [item for item in items if {str(item.get("message")), str(item.get("clock"))} & subject.words]
    return named or ([{}] if own else [])


def line_of(hit: Hit, start_ns: int) -> dict[str, Any]:
    """The line of a row as such, with its first item."""
    item = next(iter(hit.row.get("items") or ()), {})
    return row_line(hit, item, Subject(item.get("job") or "", frozenset()), start_ns)


def row_line(hit: Hit, item: Mapping[str, Any], subject: Subject, start_ns: int) -> dict[str, Any]:
    """One line of evidence. `named`: the sentence names this very row by its token, its message or its job."""
    row = hit.row
    begun_ns, done_ns = row.get("first_send_ns") or row.get("t_ns") or start_ns, row.get("done_ns")
    fence, nonce, message, clock = (item.get(name) for name in ("fence", "nonce", "message", "clock"))
    about = f"{fence}/{nonce}" if fence is not None else f"{message or ''} clock {clock}" if clock is not None else message or ""
    texts = {str(part) for part in (fence, nonce, message, clock) if part is not None}
    other = item.get("job") not in (None, subject.name)
    return {
        "file": hit.file,
        "line": hit.line,
        "at_s": round((begun_ns - start_ns) / SECOND_NS, 6),
        "done_s": None if done_ns is None else round((done_ns - start_ns) / SECOND_NS, 6),
        "process": row.get("proc") or "",
        "job": item.get("job") or "",
        "what": what(row),
        "answer": answer(row, item),
        "about": about.strip(),
        "named": other or bool(texts & subject.words),
    }


def what(row: Mapping[str, Any]) -> str:
    """What a row records, in one or two words."""
    kind = row.get("kind")
    if kind == "operation":
        return str(row.get("f"))
    if kind == "final":
        return f"{row.get('name')} {row.get('state') or 'snapshot'}"
    return f"fault {row.get('stage')}" if kind == "fault" else str(kind)


def answer(row: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """The answer to a call: the result of the item, or of the whole call; why there is none."""
    if row.get("kind") != "operation":
        return str(row.get("result") or "")
    if row.get("type") == "invoke":
        return "no answer"
    result = str(item.get("result") or row.get("result") or row.get("type"))
    outcome, error = item.get("outcome"), row.get("error") or item.get("error")
    result = f"{result}, {outcome}" if outcome and outcome != result else result
    return f"{row['type']}: {error}" if row.get("type") in ("fail", "info") and error else result


def chosen(lines: Sequence[dict[str, Any]], most: int = ROWS_MAX) -> list[dict[str, Any]]:
    """At most so many lines, in order: those that the sentence names and the ones next to them in time; else first and last."""
    if len(lines) <= most:
        return list(lines)
    named = [one["at_s"] for one in lines if one["named"]]
    if not named:
        return [*lines[: most // 2], *lines[len(lines) - (most - most // 2) :]]
    far = [(not one["named"], min(abs(one["at_s"] - at_s) for at_s in named)) for one in lines]
    kept = sorted(sorted(range(len(lines)), key=far.__getitem__)[:most])
    return [lines[place] for place in kept]


def printed(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of evidence as text: place, second, what and answer, the job if there are several, and lease or message; columns
    padded."""
    jobs = {one["job"] for one in lines if one["job"]}
    cells = [
        (
            f"{one['file']}:{one['line']}",
            f"{one['at_s']:.3f} s",
            f"{one['what']} {one['answer']}".strip(),
            *([one["job"]] if len(jobs) > 1 else []),
            str(one["about"]),
        )
        for one in lines
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    return ["  ".join([place, at.strip().rjust(widths[1]), *others]).rstrip() for place, at, *others in padded]


#: Words that may be the name of a job or a message: letters with a digit or a hyphen, or with both.
NAME = re.compile(r"(?=.*[0-9_-])(?=.*[A-Za-z])[\w.:-]{2,120}")


def names_in(sentence: str, known: frozenset[str]) -> list[str]:
    """Words of a sentence that may be names of other jobs or of messages, apart from the known ones, such as processes."""
    words = (word.strip(",;:.()'\"") for word in sentence.split())
    return list(dict.fromkeys(word for word in words if NAME.fullmatch(word) and word not in known))


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
