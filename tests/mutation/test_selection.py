"""Tests are chosen by the lines that they reach, in an order that begins with the likeliest; and marks say which lines ran."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import redis

from engine.testing.server import EmbeddedServer
from tests.mutation.edits import ROOT, Change, Edit
from tests.mutation.judging import Judge, Result, Results, failing_anyway, table
from tests.mutation.lua_marks import mark
from tests.mutation.record import Case, Record, of_texts
from tests.mutation.running import HarnessFault, Outcome, Run
from tests.mutation.selection import order
from tests.mutation.tree import Tree

SCRIPT = Path(__file__).with_name("marked.lua").read_text()


@pytest.mark.parametrize(("n", "ran"), [("1", {3, 4, 13}), ("2", {3, 4, 5, 8, 9, 11}), ("9", {3, 5, 6, 7, 11, 13})])
def test_marks_say_which_lines_ran(ironclaim_server: EmbeddedServer, n: str, ran: set[int]) -> None:
    text, marks = mark(SCRIPT, 100)
    marked = "local set = {} for at in pairs(_marks) do set[#set + 1] = at end return set"
    body = text.removeprefix("#!lua\n").replace("return m", marked)
    with redis.Redis.from_url(ironclaim_server.url) as server:
        found = set(server.eval("local _marks = {}\n" + body, 0, n))
    lines = {line for line, at in enumerate(marks, 1) if at in found}
    assert ran <= lines and ({6, 7} <= lines) == (n == "9") and (9 in lines) == (n == "2")
    assert (11 in lines) == (n != "1") and text.count("\n") == SCRIPT.count("\n")


def case(name: str, *, seconds: float = 0.1, breadth: int = 100, starts: bool = False, unmarked: bool = False) -> Case:
    return Case(name, seconds, breadth, starts, unmarked)


TESTS = (
    *(case("tests/test_wide.py::test_all", breadth=900), case("tests/test_pick_jobs.py::test_it", breadth=500)),
    *(case("tests/test_small.py::test_this", breadth=10), case("tests/test_slow.py::test_walk", seconds=30)),
    *(case("tests/test_else.py::test_else"), case("tests/test_processes.py::test_worker", starts=True)),
    case("tests/test_texts.py::test_text", unmarked=True),
    case("tests/conformance/test_calls.py::test_calls", seconds=3, breadth=4000),
)
FILE = "lua/core/modules/pick_jobs.lua"
RECORD = Record("f", TESTS, {FILE: {40: 0b1111, 41: 0b10000, 42: 0b10000010}})


def edit(line: int, file: str = FILE) -> Edit:
    return Edit(f"{file}:{line}", "x", (Change(file, line, "old", "new"),))


def names(tests: Sequence[Case]) -> list[str]:
    return [test.file.removeprefix("tests/test_").removesuffix(".py") for test in tests]


def test_only_tests_that_reach_the_line_run_the_likeliest_first() -> None:
    chosen = order(RECORD, edit(40))
    assert names(chosen.scouts) == ["pick_jobs", "small", "wide"]
    assert names(chosen.others) == ["texts", "slow"] and names(order(RECORD, edit(41)).scouts) == ["else"]
    assert names(order(RECORD, edit(40), first={TESTS[0].id}).scouts)[0] == "wide"


def test_stored_calls_come_first_for_an_edit_of_a_script() -> None:
    assert [test.id for test in order(RECORD, edit(42)).scouts] == [TESTS[7].id, TESTS[1].id]


def test_a_slower_test_that_is_named_for_the_subject_is_not_put_off() -> None:
    tests = (*TESTS, case("tests/test_pick_slowly.py::test_it", seconds=4))
    found = order(Record("f", tests, {FILE: {40: 0b100001000}}), edit(40)).others
    assert names(found) == ["pick_slowly", "texts", "slow"]


def test_all_tests_of_a_file_that_is_named_for_the_subject_come_before_others() -> None:
    more = [case(f"tests/test_{file}.py::test_{at}", seconds=1) for at in range(9) for file in ("else", "picking")]
    found = order(Record("f", more, {FILE: {40: (1 << 18) - 1}}), edit(40)).others
    assert [test.file for test in found] == ["tests/test_picking.py"] * 6 + ["tests/test_else.py"] * 6


def test_a_budget_and_files_leave_tests_out() -> None:
    assert (names(order(RECORD, edit(40), budget_s=20).others), order(RECORD, edit(40), budget_s=20).left_out) == (["texts"], 1)
    assert names(order(RECORD, edit(40), without={"tests/test_small.py"}).scouts) == ["pick_jobs", "wide"]


def test_for_python_the_tests_with_processes_of_their_own_come_last() -> None:
    line = (ROOT / "engine/ops/base.py").read_text().split("\n").index("        if self.script is None:") + 1
    record = Record("f", TESTS, {"engine/ops/base.py": {line: 0b100, 1: 0b1000}})
    chosen = order(record, edit(line, "engine/ops/base.py"))
    assert (names(chosen.scouts), names(chosen.others)) == (["small"], ["processes", "texts"])
    # What runs on import is tested by whoever uses the module.
    assert names(record.reaching(edit(12, "engine/ops/base.py"))) == ["small", "slow"]


def test_tests_of_texts_are_left_out() -> None:
    assert of_texts("tests/chaos/test_simulate.py::test_each_rule_is_taken_away_or_said_not_to_be")
    assert not of_texts("tests/chaos/test_simulate.py::test_another_seed_is_another_episode")


CASES = """
import os, time
def test_good(): pass
def test_bad(): assert 1 == 2
def test_worse(): raise KeyError("k")
def test_flaky():
    was, path = os.path.exists("once"), open("once", "w")
    assert was
def test_endless(): time.sleep(1_000)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree that has the plugin and one file of tests."""
    folder = tmp_path / "tree"
    (folder / "tests" / "mutation").mkdir(parents=True)
    (folder / "tests" / "mutation" / "chosen.py").write_text((ROOT / "tests/mutation/chosen.py").read_text())
    (folder / "tests" / "test_x.py").write_text(CASES)
    made = Tree.__new__(Tree)
    made.path = folder
    return made


def ids(*cases: str) -> list[str]:
    return [f"tests/test_x.py::test_{case}" for case in cases]


@pytest.mark.slow
def test_a_run_keeps_to_its_order_and_stops_where_it_should(tree: Tree, tmp_path: Path) -> None:
    first = Run(tree, tmp_path / "run", {}, stop="first").tests(ids("good", "worse", "bad"))
    assert [(name.rpartition("_")[2], why) for name, why in first.failed] == [("worse", "KeyError: 'k'")]
    assert [name for name, _ in Run(tree, tmp_path / "run", {}, stop="file").tests(ids("bad", "worse")).failed] == ids("bad")
    every = Run(tree, tmp_path / "run", {}, stop="never").tests(ids("bad", "good", "worse"))
    assert [name for name, _ in every.failed] == ids("bad", "worse")
    assert Run(tree, tmp_path / "run", {}, stop="first").tests(ids("good")).failed == ()


@pytest.mark.slow
def test_modules_that_cannot_be_imported_are_seen_and_a_missing_file_is_a_fault(tree: Tree, tmp_path: Path) -> None:
    run = Run(tree, tmp_path / "run", {}, stop="first")
    with pytest.raises(HarnessFault):
        run.tests(["tests/test_gone.py::test_x"])
    (tree.path / "tests" / "test_x.py").write_text("import no_such_module\n")
    assert run.tests(ids("good")).failed == (("tests/test_x.py", "cannot be collected"),)


@pytest.mark.slow
def test_a_test_that_hangs_is_ended_and_counts_as_failed(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutation.running._LIMIT_S", 1.0)
    monkeypatch.setattr("tests.mutation.running._LIMIT_TIMES", 0.0)
    outcome = Run(tree, tmp_path / "run", {}, stop="first").tests(ids("endless"))
    assert outcome.failed == ((ids("endless")[0], "took too long"),)


@pytest.mark.slow
def test_a_failure_that_does_not_come_again_is_no_sight(tree: Tree, tmp_path: Path) -> None:
    known = [case(name) for name in ids("flaky", "bad")]
    judge = Judge(Record("f", known, {FILE: {40: 0b11}}), Results(tmp_path / "results.jsonl"), "key", 0, ())
    flaky: set[str] = set()
    killer, _ = judge._first(Run(tree, tmp_path / "run", {}, stop="first"), known, flaky)
    assert (killer[0], flaky) == (ids("bad")[0], set(ids("flaky")))


@pytest.mark.slow
def test_a_start_that_fails_once_and_a_test_that_fails_anyway_are_no_sight(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [case(name) for name in ids("bad", "good")]
    record = Record("f", known, {FILE: {40: 0b11}})
    judge = Judge(record, Results(tmp_path / "results.jsonl"), "key", 0, ())
    run, flaky, tests = Run(tree, tmp_path / "run", {}, stop="first"), set[str](), Run.tests
    outcomes = iter([Outcome((("the start of pytest", "took too long"),), 1.0)])
    monkeypatch.setattr(
        Run, "tests", lambda run, chosen, patience=1.0: next(outcomes, None) or tests(run, chosen, patience=patience)
    )
    assert judge._first(run, known[1:], flaky)[0] == ("", "") and flaky == {"the start of pytest"}
    assert failing_anyway(record, [result("1", by) for by in ids("bad", "good")], tree, tmp_path / "run") == set(ids("bad"))


def result(id: str, by: str = "", files: tuple[str, ...] = ()) -> Result:
    return Result("key", id, f"text of {id}", by, "", files, 0, 1, 1.0, ())


def test_results_are_there_at_the_next_start_and_a_cut_line_is_not(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).add(result("one", "tests/a.py::test_a"))
    with path.open("a") as file:
        file.write(json.dumps({"key": "key", "id": "two"})[:20])
    again = Results(path)
    assert list(again.done("key")) == ["one"] and again.done("another key") == {}


def test_the_table_says_which_files_alone_see_an_edit() -> None:
    a, b = "tests/a.py", "tests/b.py"
    results = [result("1", "tests/c.py::t", (a,)), result("2", "", (a, b)), result("3", "", (b,)), result("4", "tests/c.py::t")]
    assert [row.split() for row in table(results, (a, b))[1:]] == [["2", "1", "1", "0", a], ["2", "1", "2", "1", b]]
    assert [row.split() for row in table(results, ())] == [["2", "first", "seen", "by", "tests/c.py"]]


def test_a_clean_tree_is_there_again_after_an_edit(tree: Tree) -> None:
    file = tree.path / "tests" / "test_x.py"
    before = file.read_text()
    change = Change("tests/test_x.py", 3, "def test_good(): pass", "def test_good(): assert 0")
    with tree.edited(Edit("x", "x", (change,))):
        assert "assert 0" in file.read_text()
    assert file.read_text() == before
