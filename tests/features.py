"""Which features of the five seeds each model has: what `tests/features.csv` promises beside the tests that prove it.

A test says with `@pytest.mark.feature("BQ14")`, on itself, its class or its module, that it asserts the effect of BQ14 for
Lanes; with `model="bull"` it speaks for another model. A cell of the table is one of

- `covered`: a promise; at least one marked test must hold it, or the suite fails,
- `not yet`: nothing is promised. As soon as a test marks it, it counts as covered,
- `not applicable: REASON`, or `not applicable: later work: WHO OWNS IT`.

`python -m tests.features [--model lanes]` prints it. Over all models a feature is covered when any model covers it, and not
applicable when
no model will ever have it.
"""

from __future__ import annotations

import argparse
import ast
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MODELS = ("lanes", "bridge", "bananas", "bull", "mosquito", "dsps")
STATES = ("covered", "not yet", "not applicable")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Feature:
    """One row; `cells` by model."""

    id: str
    system: str
    feature: str
    cells: dict[str, str]


@dataclass(frozen=True, slots=True)
class Proof:
    """One test that marks features. `problem` says why it proves nothing, '' if it does."""

    test: str
    ids: tuple[str, ...]
    model: str
    problem: str


@dataclass(frozen=True, slots=True)
class Line:
    """What is to be told of one feature: its state, and the models or tests that prove it, or the reason."""

    feature: Feature
    state: str
    why: str


def features(file: Path = FOLDER / "features.csv") -> list[Feature]:
    """The rows of the table, in its order."""
    with file.open(newline="") as lines:
        return [
            Feature(row["id"], row["system"], row["feature"], {model: row[model] for model in MODELS})
            for row in csv.DictReader(lines)
        ]


@cache
def proofs(folder: Path = FOLDER) -> list[Proof]:
    """Every test below the folder that marks features, from its source alone: nothing is imported."""
    texts = {path: path.read_text() for path in sorted(folder.rglob("*.py"))}
    # Parsed are the helpers of all, and of the tests those that may mark: the word alone is quick to look for.
    trees = {path: ast.parse(text) for path, text in texts.items() if not path.name.startswith("test_") or _MARK in text}
    asserting = _asserting([tree for path, tree in trees.items() if not path.name.startswith("test_")], set())
    return [
        proof
        for path, tree in trees.items()
        if path.name.startswith("test_")
        for proof in _proofs_of(
            tree, f"{path.relative_to(folder.parent)}", _asserting([tree], asserting), texts[path].count(_MARK)
        )
    ]


#: What stands in the source of each mark.
_MARK = "mark.feature("


def _proofs_of(tree: ast.Module, file: str, asserting: set[str], count: int) -> Iterator[Proof]:
    """The marked tests of one file that has so many marks at most, and what looks like a mark and is none."""
    module = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    used: set[ast.Call] = set()
    groups = [("", module, tree.body)]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    groups += [(f"{node.name}::", [*module, *node.decorator_list], node.body) for node in classes]
    for prefix, outer, body in groups:
        for test in body:
            if isinstance(test, _Function) and test.name.startswith("test"):
                marks = [mark for place in (*outer, *test.decorator_list) for mark in _marks(place)]
                used |= set(marks)
                for mark in marks:
                    yield _proof(mark, f"{file}::{prefix}{test.name}", _problem(test, outer, asserting))
    # To look through all of the file takes long.
    for mark in _marks(tree) if len(used) < count else ():
        if mark not in used:
            yield _proof(mark, f"{file}:{mark.lineno}", "it marks no test")


def _marks(place: ast.AST) -> list[ast.Call]:
    """The calls of pytest.mark.feature in a piece of source."""
    calls = (node for node in ast.walk(place) if isinstance(node, ast.Call))
    # The last name first: to write each call out takes long.
    named = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "feature")
    return [call for call in named if ast.unparse(call.func) == "pytest.mark.feature"]


def _proof(mark: ast.Call, test: str, problem: str) -> Proof:
    words = [word.value for word in mark.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    model = next((word.value.value for word in mark.keywords if isinstance(word.value, ast.Constant)), "lanes")
    if len(words) != len(mark.args) or not words or [word.arg for word in mark.keywords] not in ([], ["model"]):
        problem = 'a mark is feature("ID", ...) or feature("ID", ..., model="NAME"), in literals'
    return Proof(test, tuple(words), str(model), problem)


def _problem(test: _Function, outer: Sequence[ast.AST], asserting: set[str]) -> str:
    for place in (*outer, *test.decorator_list):
        if any(isinstance(node, ast.Attribute) and ast.unparse(node) in _NOT_RUN for node in ast.walk(place)):
            return "it is not run, or may fail"
    return "it asserts nothing" if _called(test).isdisjoint(asserting) else ""


_NOT_RUN = ("pytest.mark.skip", "pytest.mark.xfail")
_RAISES = ("raises", "fail")
_ASSERT = "assert"


def _asserting(trees: Sequence[ast.Module], known: set[str]) -> set[str]:
    """Names of the functions that assert, directly or by calling one that does, beside those that are known to."""
    places = [place for tree in trees for place in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef)))]
    functions = [
        (node.name, _called(node))
        for place in places
        for node in place.body
        # Nobody calls a test.
        if isinstance(node, _Function) and not node.name.startswith("test_")
    ]
    names = {_ASSERT, *known}
    while more := {name for name, called in functions if name not in names and not called.isdisjoint(names)}:
        names |= more
    return names


@cache
def _called(function: _Function) -> set[str]:
    """Last names of what a function calls; `_ASSERT` where it asserts itself."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            found.add(_ASSERT)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            raises = node.func.attr in _RAISES and ast.unparse(node.func.value) == "pytest"
            found.add(_ASSERT if raises else node.func.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
    return found


def proved(model: str, found: Sequence[Proof]) -> dict[str, list[str]]:
    """Feature -> the tests that prove it for a model."""
    tests: dict[str, list[str]] = {}
    for proof in found:
        if proof.model == model and not proof.problem:
            for name in proof.ids:
                tests.setdefault(name, []).append(proof.test)
    return tests


def lines_of(model: str, rows: Sequence[Feature], found: Sequence[Proof]) -> list[Line]:
    """The column of one model. What tests prove is covered, and nothing else is."""
    tests = proved(model, found)

    def line(row: Feature) -> Line:
        state, _, reason = row.cells[model].partition(": ")
        if row.id in tests and state != "not applicable":
            count = len(tests[row.id])
            return Line(row, "covered", f"{count} test{'s' * (count > 1)}, {tests[row.id][0]}")
        return Line(row, "not yet" if state == "covered" else state, reason)

    return [line(row) for row in rows]


def lines_over_all(rows: Sequence[Feature], found: Sequence[Proof]) -> list[Line]:
    """Each feature once, whichever model has it."""
    columns = {model: lines_of(model, rows, found) for model in MODELS}

    def line(at: int, row: Feature) -> Line:
        by_state = {state: [model for model in MODELS if columns[model][at].state == state] for state in STATES}
        state = next(state for state in STATES if by_state[state])
        own = [columns[model][at].why for model in MODELS if not columns[model][at].why.startswith("no part of")]
        return Line(row, state, own[0] if state == "not applicable" else ", ".join(by_state[state]))

    return [line(at, row) for at, row in enumerate(rows)]


def main(words: Sequence[str]) -> int:
    """Print the table. Exit code 2 for a model that there is not."""
    parser = argparse.ArgumentParser(prog="features", description="Which features tests prove.")
    parser.add_argument("--model", choices=MODELS, help="only the column of this model")
    model = parser.parse_args(words).model
    rows, found = features(), proofs()
    told = lines_of(model, rows, found) if model else lines_over_all(rows, found)
    width = max(len(line.feature.feature) for line in told)
    for line in told:
        print(f"{line.feature.id}  {line.feature.feature:{width}}  {line.state:14}  {line.why}".rstrip())
    counts = ", ".join(f"{state} {sum(line.state == state for line in told)}" for state in STATES)
    print(f"features{' ' + model if model else ''}: {counts} of {len(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
