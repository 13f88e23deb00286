"""In which order the tests that reach an edit are run: those that are most likely to fail first, a few of each file."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tests.mutation.edits import Edit
from tests.mutation.record import Case, Record, total_s

_SCOUTS_S, _SCOUTS_MAX, _SCOUTS_OF_A_FILE = 12.0, 60, 3
_SCOUT_S, _NAMED_S = 1.5, 10.0
#: They play each script by itself, and see most of what an edit of one changes.
_STORED_CALLS = "tests/conformance/test_calls.py::"
_WORD = re.compile(r"[a-z]+")
#: Tests of a resolver are called those of resolving, tests of a measure those of measures.
_ENDING = re.compile(r"(?:ing|er|or|ed|es|s|e)$")
#: What is left of words of paths that say nothing of a subject.
_COMMON = frozenset({"lua", "engin", "modul", "test", "py", "lan", "part", "model"})


@dataclass(frozen=True, slots=True)
class Order:
    """Two lots of tests: quick ones from many files, and the others, file by file; and how many were left out for their time."""

    scouts: Sequence[Case]
    others: Sequence[Case]
    left_out: int


def order(
    record: Record, edit: Edit, *, first: Collection[str] = (), without: Collection[str] = (), budget_s: float = 0
) -> Order:
    """The order for one edit. `first`: tests that saw it before; `without`: files of tests that shall not run; `budget_s`: most
    recorded time, 0 for all."""
    reaching = [test for test in record.reaching(edit) if test.file not in without]
    maybe = [test for test in record.perhaps(edit) if test.file not in without]
    first = {*first, *(test.id for test in reaching if edit.lua and test.id.startswith(_STORED_CALLS))}
    subject = {word for change in edit.changes for word in _words(change.file)}
    ranked = sorted(reaching, key=lambda test: _rank(test, subject, first))
    # Those whose other processes nobody saw come last: they may have nothing to do with it.
    ranked += sorted(maybe, key=lambda test: _rank(test, subject, first))
    scouts = _scouts(ranked, first)
    chosen = {test.id for test in scouts}
    turns = [test for test in _in_turns(ranked, subject) if test.id not in chosen]
    kept = _within(turns, budget_s - total_s(scouts)) if budget_s else turns
    places = {file: place for place, file in enumerate(dict.fromkeys(test.file for test in kept))}
    return Order(scouts, sorted(kept, key=lambda test: places[test.file]), len(turns) - len(kept))


def _words(path: str) -> set[str]:
    return {_ENDING.sub("", word) for word in _WORD.findall(path.lower())} - _COMMON


def _rank(test: Case, subject: set[str], first: Collection[str]) -> tuple[bool, int, float]:
    """A test that is named for the subject, then one that does little else and takes no time."""
    return test.id not in first, -len(subject & _words(test.id.partition("[")[0])), test.breadth * (0.2 + test.seconds)


def _in_turns(ranked: Iterable[Case], subject: Collection[str]) -> list[Case]:
    """Those of files that are named for the subject, then of all others the first one of each file, the second ones, and so on.

    Slow ones come last: a drill takes as long as thousands. Those in files that are named for the subject may take longer.
    """
    seen: dict[str, int] = defaultdict(int)
    turns: list[tuple[bool, int, int, Case]] = []
    for test in ranked:
        seen[test.file] += 1
        named = len(_words(test.file).intersection(subject))
        turns.append((test.seconds > (_NAMED_S if named else _SCOUT_S), -named, 0 if named else seen[test.file], test))
    return [test for *_, test in sorted(turns, key=lambda turn: turn[:3])]


def _scouts(ranked: Sequence[Case], first: Collection[str]) -> list[Case]:
    scouts: list[Case] = [test for test in ranked if test.id in first]
    count: dict[str, int] = defaultdict(int)
    left_s = _SCOUTS_S
    for test in ranked:
        if test in scouts or test.starts or test.unmarked or test.seconds > _SCOUT_S or count[test.file] == _SCOUTS_OF_A_FILE:
            continue
        if left_s < test.seconds or len(scouts) == _SCOUTS_MAX:
            break
        count[test.file] += 1
        left_s -= test.seconds
        scouts.append(test)
    # A file's tests together, for the fixtures that they share.
    places = {file: place for place, file in enumerate(dict.fromkeys(test.file for test in scouts))}
    return sorted(scouts, key=lambda test: (test.id not in first, places[test.file]))


def _within(tests: Sequence[Case], budget_s: float) -> list[Case]:
    kept: list[Case] = []
    for test in tests:
        if test.seconds <= budget_s:
            budget_s -= test.seconds
            kept.append(test)
    return kept
