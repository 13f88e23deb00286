"""Which tests reach which lines: one recorded run of the tests in a copy of the tree, kept under build/mutation."""

import ast
import gzip
import hashlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import coverage

from tests.mutation.edits import ROOT, Edit
from tests.mutation.lua_marks import LINES, put_marks
from tests.mutation.tree import Tree, files

#: Tests of texts: of the sources themselves, or of patches that must fit them. Any edit may fail them, whatever it does.
OF_TEXTS = ("tests/project/", "tests/mutation/", "tests/chaos/test_mutants", "tests/chaos/channels/test_mutants")
_OF_TEXTS_TOO = ("::test_a_rule_that_is_taken_away", "::test_each_rule_is_taken_away", "::test_a_removal_of_a_text")


@dataclass(frozen=True, slots=True)
class Case:
    """One test of the recorded run: what it took, with its fixtures, and how many lines it reached. `starts`: it starts other
    Pythons, whose lines nobody saw; `unmarked`: it failed with marks in the scripts alone, so what it reaches is not known."""

    id: str
    seconds: float
    breadth: int
    starts: bool
    unmarked: bool

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.id.partition("::")[0]


@dataclass(frozen=True, slots=True)
class Record:
    """Tests by number, and for each line of a file the set of its tests, as the bits of an integer."""

    fingerprint: str
    tests: Sequence[Case]
    lines: dict[str, dict[int, int]]

    def reaching(self, edit: Edit) -> list[Case]:
        """The tests that reach a line of an edit. A line that runs when its module is imported has all tests of the module."""
        found = 0
        for change in edit.changes:
            lines = self.lines.get(change.file, {})
            # The first line of a script, its flags, has no mark: it counts for all tests of the script.
            if change.file.endswith(".lua"):
                wanted = [line for line in change.lines if line in lines]
            else:
                wanted = _statements((ROOT / change.file).read_text(), change.lines)
            for line in wanted or lines:
                found |= lines.get(line, 0)
        return [self.tests[at] for at in _bits(found)]

    def perhaps(self, edit: Edit) -> list[Case]:
        """The tests that were not seen to reach an edit, and may: scripts are seen wherever they were called from."""
        reaching = {test.id for test in self.reaching(edit)}
        maybe = (test for test in self.tests if test.unmarked or (test.starts and not edit.lua))
        return [test for test in maybe if test.id not in reaching]


@lru_cache(maxsize=8)
def _functions(text: str) -> list[tuple[range, list[range]]]:
    """The functions of a module: their lines, and those of their statements' heads."""
    found: list[tuple[range, list[range]]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            heads = [_head(part) for part in ast.walk(node) if isinstance(part, ast.stmt) and part is not node]
            found.append((range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1), heads))
    return found


def _head(statement: ast.stmt) -> range:
    body: Any = getattr(statement, "body", None)
    last = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(last, statement.lineno + 1))


def _statements(text: str, lines: range) -> list[int]:
    """The lines of the statements that stand in these lines of a module; none when they are outside of functions."""
    heads = [head for inside, heads in _functions(text) for head in heads if any(line in inside for line in lines)]
    return sorted({line for head in heads if any(line in head for line in lines) for line in head})


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def fingerprint(expression: str, tests: Sequence[str]) -> str:
    """What a record is good for: these sources, these tests, this choice of them."""
    known = hashlib.sha256(repr((expression, tests)).encode())
    for file in files():
        if not file.startswith("tests/mutation/") and file.endswith((".py", ".lua", "pyproject.toml")):
            known.update(file.encode() + b"\0" + (ROOT / file).read_bytes())
    return known.hexdigest()[:16]


def recorded(folder: Path, expression: str, tests: Sequence[str], jobs: int, *, keep: bool) -> Record:
    """The record of the present tree, made now if there is none yet. `keep`: the last one of this choice of tests will do, even
    if the tree has changed since. Raises CalledProcessError when no test runs."""
    of = fingerprint(expression, tests)
    path = folder / f"record-{hashlib.sha256(repr((expression, tests)).encode()).hexdigest()[:8]}.json.gz"
    if path.exists():
        with gzip.open(path, "rt") as file:
            kept = json.load(file)
        if keep or kept["fingerprint"] == of:
            lines = {name: {int(at): int(bits, 16) for at, bits in found.items()} for name, found in kept["lines"].items()}
            return Record(kept["fingerprint"], [Case(**test) for test in kept["tests"]], lines)
    record = _record(of, folder, expression, tests, jobs)
    content = {
        "fingerprint": of,
        "tests": [{name: getattr(test, name) for name in Case.__slots__} for test in record.tests],
        "lines": {name: {at: f"{bits:x}" for at, bits in found.items()} for name, found in record.lines.items()},
    }
    with gzip.open(path, "wt", compresslevel=5) as file:
        json.dump(content, file)
    return record


def _record(of: str, folder: Path, expression: str, tests: Sequence[str], jobs: int) -> Record:
    tree, clean = Tree(folder / "recorded"), Tree(folder / "tree-0")
    put_marks(tree.path)
    kept = tree.path / "record"
    kept.mkdir(exist_ok=True)
    print(f"recording which tests reach which lines, in {jobs} processes; output in {folder / 'recorded.log'}", flush=True)
    options = ["-p", "tests.mutation.recording", "--numprocesses", str(jobs), "--no-loadscope-reorder", *tests]
    # Nobody wants to know what they reach.
    options += [f"--ignore-glob={tree.path / start}*" for start in OF_TEXTS]
    if expression:
        options += ["-m", expression]
    _pytest(tree, options, folder / "recorded.log", {"IRONCLAIM_MUTATION_RECORD": str(kept)})
    found = _results(kept)
    if not found:
        last = (folder / "recorded.log").read_text().splitlines()[-5:]
        raise SystemExit("no test ran:\n" + "\n".join(last))
    failed = sorted(test for test, result in found.items() if result["failed"])
    again: set[str] = set()
    if failed:
        print(f"{len(failed)} of {len(found)} tests failed with marks in the scripts: once more without", flush=True)
        again = _passing(clean, failed, folder)
    good = {test: result for test, result in found.items() if test not in failed or test in again}
    return _merged(of, tree.path, kept, good, again)


def _pytest(tree: Tree, options: Sequence[str], log: Path, variables: dict[str, str]) -> None:
    with log.open("wb") as output:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tree.path / "tmp"), *options]
        subprocess.run(command, cwd=tree.path, env={**tree.environment(), **variables}, stdout=output, stderr=subprocess.STDOUT)


def _results(kept: Path) -> dict[str, dict[str, Any]]:
    """By id of the test, without those of texts and those that were skipped."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(kept.glob("*.json")):
        found |= json.loads(path.read_text())["tests"]
    return {test: result for test, result in sorted(found.items()) if not result["skipped"] and not of_texts(test)}


def of_texts(test: str) -> bool:
    """Whether a test fails with edits that do no harm."""
    return test.startswith(OF_TEXTS) or any(name in test for name in _OF_TEXTS_TOO)


def _passing(tree: Tree, tests: Sequence[str], folder: Path) -> set[str]:
    """Those of some tests that pass in the clean copy."""
    from tests.mutation.running import Run

    failed = {test for test, _ in Run(tree, folder / "again", {}, stop="never").tests(tests).failed}
    return set(tests) - failed


def _merged(of: str, tree: Path, kept: Path, results: dict[str, dict[str, Any]], again: set[str]) -> Record:
    """All processes' files as one record."""
    ids = sorted(results)
    bits: dict[str, int] = {test: 1 << at for at, test in enumerate(ids)}
    of_file: dict[str, int] = defaultdict(int)
    for test in ids:
        of_file[test.partition("::")[0]] |= bits[test]
    context_bits = {**of_file, **bits}
    lines: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    starts: set[str] = set()
    by_mark: dict[int, int] = defaultdict(int)
    for path in sorted(kept.glob("*.json")):
        part = json.loads(path.read_text())
        starts |= set(part["starts"])
        for context, marks in part["marks"].items():
            for mark in marks:
                by_mark[mark] |= context_bits.get(context, 0)
        _add_python(lines, tree, path.with_suffix(".coverage"), context_bits)
    for file, marks in json.loads((tree / LINES).read_text()).items():
        for line, mark in enumerate(marks, 1):
            if by_mark.get(mark):
                lines[file][line] = by_mark[mark]
    breadth = [0] * len(ids)
    for found in lines.values():
        for tests in found.values():
            for at in _bits(tests):
                breadth[at] += 1
    cases: list[Case] = []
    for at, test in enumerate(ids):
        started = not starts.isdisjoint((test, test.partition("::")[0]))
        cases.append(Case(test, round(results[test]["seconds"], 3), breadth[at], started, test in again))
    return Record(of, cases, {file: dict(found) for file, found in lines.items()})


def _add_python(lines: dict[str, dict[int, int]], tree: Path, path: Path, bits: dict[str, int]) -> None:
    if not path.exists():
        return
    data = coverage.CoverageData(str(path))
    data.read()
    for file in data.measured_files():
        name = str(Path(file).relative_to(tree))
        for line, contexts in data.contexts_by_lineno(file).items():
            for context in contexts:
                lines[name][line] |= bits.get(context, 0)


def total_s(tests: Iterable[Case]) -> float:
    """What some tests took, seconds."""
    return sum(test.seconds for test in tests)
