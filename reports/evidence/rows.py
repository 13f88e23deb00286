"""From rows of the history to lines of evidence: what each row says about the subject of a violation, in order of time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reports.evidence.scan import Hit

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
                found[key] = line(hit, item, subject, start_ns)
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
    return line(hit, item, Subject(item.get("job") or "", frozenset()), start_ns)


def line(hit: Hit, item: Mapping[str, Any], subject: Subject, start_ns: int) -> dict[str, Any]:
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
