"""One edit after the other, in copies of the tree: which test sees it. Results are kept as lines of JSON, so that a second start
goes on where the first one ended."""

import json
import queue
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutation.edits import Edit
from tests.mutation.record import Case, Record
from tests.mutation.running import Run
from tests.mutation.selection import order
from tests.mutation.tree import Tree

#: An edit has at most this many failures that do not come again before its tests count as passed.
_FLAKES_MAX = 5


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one edit. `key`: of the tree and the choice of tests; `test`: the first one that failed, '' for none,
    and `why`; `files`: of the test files asked for, those that see it; `left_out`: tests that the budget had no time for."""

    key: str
    id: str
    content: str
    test: str
    why: str
    files: tuple[str, ...]
    left_out: int
    tests: int
    seconds: float
    flaky: tuple[str, ...]

    @property
    def seen(self) -> bool:
        """Whether any test failed."""
        return bool(self.test or self.files)


class Results:
    """The file of results. Safe from threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        # The last line may have been cut off.
        self._all = [Result(**json.loads(line)) for line in lines if line.endswith("}")]

    def done(self, key: str) -> dict[str, Result]:
        """By id of the edit."""
        return {result.id: result for result in self._all if result.key == key}

    def killers(self, edit: Edit) -> set[str]:
        """The tests that saw this edit in any tree."""
        return {result.test for result in self._all if result.content == edit.content and result.test}

    def add(self, result: Result) -> None:
        """Written at once."""
        with self._lock, self._path.open("a") as file:
            self._all.append(result)
            file.write(json.dumps(asdict(result)) + "\n")


@dataclass(frozen=True, slots=True)
class Judge:
    """How edits are judged. `files`: test files of which all that see an edit are wanted, not only the first."""

    record: Record
    results: Results
    key: str
    budget_s: float
    files: Collection[str]

    def judge(self, edits: Sequence[Edit], trees: Sequence[Tree], scratch: Path) -> Iterator[Result]:
        """The results of edits as they come, one edit at a time in each tree. Raises HarnessFault."""
        seconds = _seconds(self.record)
        free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for tree in trees:
            free.put(tree)

        def one(edit: Edit) -> Result:
            tree = free.get()
            try:
                with tree.edited(edit):
                    result = self._one(edit, tree, scratch / f"run-{tree.path.name}", seconds)
            finally:
                free.put(tree)
            self.results.add(result)
            return result

        pool = ThreadPoolExecutor(max(1, len(trees)))
        try:
            for future in as_completed([pool.submit(one, edit) for edit in edits]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _one(self, edit: Edit, tree: Tree, scratch: Path, seconds: Mapping[str, float]) -> Result:
        flaky: set[str] = set()
        spent_s, count, files = 0.0, 0, ()
        if self.files:
            others = {test.file for test in self.record.tests} - set(self.files)
            whole = order(self.record, edit, without=others)
            run = Run(tree, scratch, seconds, stop="file")
            tests = [test.id for test in (*whole.scouts, *whole.others)]
            outcome = run.tests(tests)
            again = run.tests([test for test, _ in outcome.failed if test in seconds], patience=2)
            flaky |= {test for test, _ in outcome.failed if test in seconds} - {test for test, _ in again.failed}
            files = tuple(sorted({test.partition("::")[0] for test, _ in outcome.failed if test not in flaky}))
            spent_s, count = outcome.seconds + again.seconds, len(tests)
        chosen = order(self.record, edit, first=self.results.killers(edit), without=self.files, budget_s=self.budget_s)
        run = Run(tree, scratch, seconds, stop="first")
        killer = ("", "")
        for lot in (chosen.scouts, chosen.others):
            killer, lot_s = self._first(run, lot, flaky)
            spent_s, count = spent_s + lot_s, count + len(lot)
            if killer[0]:
                break
        left_out = 0 if killer[0] else chosen.left_out
        return Result(self.key, edit.id, edit.content, *killer, files, left_out, count, round(spent_s, 1), tuple(sorted(flaky)))

    def _first(self, run: Run, lot: Sequence[Case], flaky: set[str]) -> tuple[tuple[str, str], float]:
        """The first test that fails and fails again; and how long all took, seconds. Those that do not fail again are added to
        `flaky`."""
        left, spent_s = [test.id for test in lot], 0.0
        while left and len(flaky) <= _FLAKES_MAX:
            outcome = run.tests(left)
            spent_s += outcome.seconds
            if not outcome.failed:
                break
            test, why = outcome.failed[0]
            # What is no test of these, such as a module that cannot be imported or a start that took too long, may have failed
            # for the load, too: all of them are run again.
            again = run.tests([test] if test in left else left, patience=2)
            spent_s += again.seconds
            if again.failed:
                return (test, why), spent_s
            flaky.add(test)
            if test not in left:
                break
            left = left[left.index(test) + 1 :]
        return ("", ""), spent_s


def failing_anyway(record: Record, results: Iterable[Result], tree: Tree, scratch: Path) -> set[str]:
    """Of the tests that saw edits, those that fail, and fail again, in a copy without any edit: they have seen nothing."""
    known = {test.id for test in record.tests}
    tests = sorted({result.test for result in results} & known)
    run = Run(tree, scratch, _seconds(record), stop="never")
    for _ in range(2):
        tests = [test for test, _ in run.tests(tests, patience=2).failed if test in known]
    return set(tests)


def _seconds(record: Record) -> dict[str, float]:
    """How long each test may take: it may have to make what its file shares (a drill of a minute), which is in the time of the
    one that came first."""
    longest: dict[str, float] = defaultdict(float)
    for test in record.tests:
        longest[test.file] = max(longest[test.file], test.seconds)
    return {test.id: test.seconds + longest[test.file] for test in record.tests}


def table(results: Sequence[Result], files: Collection[str]) -> list[str]:
    """How many edits the tests of each file saw first, or, of files asked for, see at all and alone."""
    if not files:
        first: dict[str, int] = defaultdict(int)
        for result in results:
            if result.test:
                first[result.test.partition("::")[0]] += 1
        return [f"{count:5} first seen by {file}" for file, count in sorted(first.items(), key=lambda item: (-item[1], item[0]))]
    rows = [" sees  no other file asked for  no test outside of these  alone"]
    for file in sorted(files):
        sees = [result for result in results if file in result.files]
        only = [result for result in sees if result.files == (file,)]
        outside = [result for result in sees if not result.test]
        alone = [result for result in only if not result.test]
        rows.append(f"{len(sees):5} {len(only):24} {len(outside):25} {len(alone):6}  {file}")
    return rows
