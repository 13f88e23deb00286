"""An edit: a small change of the sources that a test ought to fail with. And the choice of edits from a seed."""

import difflib
import hashlib
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Change:
    """Whole lines of one file, from number `line` on (the first is 1): their text before and after, without the last newline."""

    file: str
    line: int
    old: str
    new: str

    @property
    def lines(self) -> range:
        """The numbers of the lines that go."""
        return range(self.line, self.line + self.old.count("\n") + 1)


@dataclass(frozen=True, slots=True)
class Edit:
    """One planted defect. `id` names it among those of one tree; `content` also when its lines have moved."""

    id: str
    operator: str
    changes: tuple[Change, ...]

    @property
    def content(self) -> str:
        """The texts alone: file, old and new, of all changes."""
        return repr([(change.file, change.old.strip(), change.new.strip()) for change in self.changes])

    @property
    def lua(self) -> bool:
        """Whether it changes scripts alone."""
        return all(change.file.endswith(".lua") for change in self.changes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line as it might be edited: its number (the first is 1), the column of the edit, and the whole new line."""

    line: int
    column: int
    operator: str
    new: str


#: Finds what might be edited in a text.
Finder = Callable[[str], Iterable[Candidate]]


def edits_of(file: str, text: str, find: Finder) -> list[Edit]:
    """All one-line edits of a file, in the order of their places."""
    lines = text.split("\n")
    found = {each for each in find(text) if each.new != lines[each.line - 1]}
    ordered = sorted(found, key=lambda each: (each.line, each.operator, each.column, each.new))
    made: list[Edit] = []
    for (line, operator), same in groupby(ordered, key=lambda it: (it.line, it.operator)):
        for number, each in enumerate(same, 1):
            change = Change(file, line, lines[line - 1], each.new)
            made.append(Edit(f"{file}:{line}:{operator}:{number}", operator, (change,)))
    return made


def in_order(seed: int, edits: Iterable[Edit]) -> Iterator[Edit]:
    """At most one edit for each line, all lines alike: the order depends on the seed and on the texts of the lines, so that
    edits of lines that stay are chosen again after the tree has changed elsewhere."""

    def rank(*of: object) -> bytes:
        return hashlib.sha256(repr((seed, *of)).encode()).digest()

    lines: dict[tuple[str, int], list[Edit]] = {}
    for edit in edits:
        lines.setdefault((edit.changes[0].file, edit.changes[0].line), []).append(edit)
    for same in sorted(lines.values(), key=lambda same: rank(same[0].changes[0].file, same[0].changes[0].old)):
        # First the kind of edit, then the edit: a line with ten constants is not ten times as likely to have one changed.
        operator = min({edit.operator for edit in same}, key=lambda operator: rank(same[0].changes[0].old, operator))
        yield min((edit for edit in same if edit.operator == operator), key=lambda edit: rank(edit.content))


def in_turns(sources: Iterable[Iterator[Edit]]) -> Iterator[Edit]:
    """One edit of each source in turn, until all have ended."""
    waiting = deque(sources)
    while waiting:
        source = waiting.popleft()
        if (edit := next(source, None)) is not None:
            yield edit
            waiting.append(source)


def from_texts(id: str, operator: str, texts: Iterable[tuple[str, str, str]]) -> Edit:
    """The edit between texts: file, before, after."""
    changes: list[Change] = []
    for file, before, after in texts:
        old, new = before.split("\n"), after.split("\n")
        for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind == "equal":
                continue
            if start == end:
                # Lines that come in: together with the one before them.
                start, new_start = start - 1, new_start - 1
            changes.append(Change(file, start + 1, "\n".join(old[start:end]), "\n".join(new[new_start:new_end])))
    return Edit(id, operator, tuple(changes))


def changed(text: str, changes: Iterable[Change]) -> str:
    """A file with the changes. Raises ValueError when it has other lines there."""
    lines = text.split("\n")
    for change in sorted(changes, key=lambda change: -change.line):
        place = slice(change.line - 1, change.line - 1 + len(change.lines))
        if "\n".join(lines[place]) != change.old:
            raise ValueError(f"{change.file}:{change.line} is not {change.old!r}")
        lines[place] = [change.new]
    return "\n".join(lines)


def equivalents(path: Path = EQUIVALENT) -> dict[tuple[str, str, str], str]:
    """The edits that were judged to change nothing that anyone can see: file, old and new line without their indentation, and
    the reason."""
    entries = tomllib.loads(path.read_text()).get("edit", ())
    return {(entry["file"], entry["old"], entry["new"]): entry["reason"] for entry in entries}


def reason_of(edit: Edit, known: dict[tuple[str, str, str], str]) -> str | None:
    """Why an edit is equivalent; None when it is not known to be."""
    if len(edit.changes) != 1:
        return None
    change = edit.changes[0]
    return known.get((change.file, change.old.strip(), change.new.strip()))
