"""The table of features: what it promises is proved by tests, and what tests claim to prove stands in it."""

import re
from pathlib import Path

import pytest

from tests.features import MODELS, STATES, Feature, Proof, features, lines_of, lines_over_all, main, proofs

PROMISED = ("covered", "not yet")
COUNTS = {"BridgeMQ": 36, "DSPS": 33, "Bananas": 37, "Bull": 36, "Mosquito": 37}

SAMPLE = """
import pytest

pytestmark = pytest.mark.feature("M1")

def agrees(value):
    assert value

def passes_on(value):
    agrees(value)

@pytest.mark.feature("A1", "A2")
def test_asserts():
    assert 1 + 1 == 2

@pytest.mark.feature("B1", model="bull")
async def test_through_helpers():
    passes_on(3)

@pytest.mark.feature("C1")
def test_raises():
    with pytest.raises(ValueError):
        int("x")

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.feature("D1"))])
class TestGroup:
    @pytest.mark.feature("D2")
    def test_in_a_class(self, n):
        assert n
"""

PROVES_NOTHING = {
    "it asserts nothing": '@pytest.mark.feature("X1")\ndef test_a():\n    assert True\n    print(len([]))\n',
    "it is not run": '@pytest.mark.skip\n@pytest.mark.feature("X1")\ndef test_a():\n    assert len([1])\n',
    "or may fail": '@pytest.mark.feature("X1")\n@pytest.mark.xfail(strict=True)\ndef test_a():\n    assert len([])\n',
    "it marks no test": '@pytest.mark.feature("X1")\ndef helper():\n    assert len([1])\n',
    "in literals": 'NAME = "X1"\n@pytest.mark.feature(NAME)\ndef test_a():\n    assert len([1])\n',
}


@pytest.fixture(scope="module")
def found() -> list[Proof]:
    """Every marked test of the project."""
    return proofs()


def test_the_table_is_whole() -> None:
    rows = features()
    assert len({row.id for row in rows}) == len(rows) == 179
    assert {system: sum(row.system == system for row in rows) for system in COUNTS} == COUNTS
    for row in rows:
        for cell in row.cells.values():
            assert cell in PROMISED or re.fullmatch(r"not applicable: \w.{5,}", cell), (row.id, cell)


def test_every_mark_names_features_that_its_model_has(found: list[Proof]) -> None:
    cells = {(row.id, model): cell for row in features() for model, cell in row.cells.items()}
    marked = [(proof, name, cells.get((name, proof.model), "unknown")) for proof in found for name in proof.ids]
    wrong = [f"{proof.test}: {name} is {cell} for {proof.model}" for proof, name, cell in marked if cell not in PROMISED]
    assert wrong == []


def test_every_marked_test_can_prove_something(found: list[Proof]) -> None:
    assert len(found) > 30 and [f"{proof.test}: {proof.problem}" for proof in found if proof.problem] == []


@pytest.mark.parametrize("model", MODELS)
def test_what_is_promised_is_proved(found: list[Proof], model: str) -> None:
    proved = {line.feature.id for line in lines_of(model, features(), found) if line.state == "covered"}
    promised = {row.id for row in features() if row.cells[model] == "covered"}
    assert promised - proved == set(), "covered says the table, but no test marks them"


def test_marks_of_every_shape_are_found(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    seen = {(one.test.rpartition("::")[2], name, one.model, one.problem) for one in proofs(tmp_path) for name in one.ids}
    tests = ("test_asserts", "test_through_helpers", "test_raises", "test_in_a_class")
    marks = {("test_asserts", "A1"), ("test_asserts", "A2"), ("test_raises", "C1")}
    marks |= {("test_in_a_class", "D1"), ("test_in_a_class", "D2")} | {(test, "M1") for test in tests}
    assert seen == {(*mark, "lanes", "") for mark in marks} | {("test_through_helpers", "B1", "bull", "")}


@pytest.mark.parametrize("problem", PROVES_NOTHING)
def test_a_mark_on_what_proves_nothing_is_no_proof(tmp_path: Path, problem: str) -> None:
    (tmp_path / "test_sample.py").write_text(f"import pytest\n\n{PROVES_NOTHING[problem]}")
    (proof,) = proofs(tmp_path)
    assert problem in proof.problem
    row = Feature("X1", "Bull", "x", dict.fromkeys(MODELS, "covered"))
    assert lines_of("lanes", [row], [proof])[0].state == "not yet"


def test_over_all_models_the_best_state_counts() -> None:
    """Covered by any, else owed by any, else nobody will have it, and why."""
    reason = "not applicable: no part of DSPS"

    def row(name: str, **cells: str) -> Feature:
        return Feature(name, "Bull", name, {model: cells.get(model, reason) for model in MODELS})

    rows = [row("A", lanes="not yet", bull="not yet"), row("B", bull="not yet"), row("C", lanes="not applicable: later work: D")]
    states = [(line.state, line.why) for line in lines_over_all(rows, [Proof("t::a", ("A",), "bull", "")])]
    assert states == [("covered", "bull"), ("not yet", "bull"), ("not applicable", "later work: D")]


@pytest.mark.parametrize(("words", "last"), [([], "features"), (["--model", "lanes"], "features lanes")])
def test_it_ends_in_a_line_that_counts_all_of_them(words: list[str], last: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    *lines, total = capsys.readouterr().out.splitlines()
    counted = re.fullmatch(rf"{last}: covered (\d+), not yet (\d+), not applicable (\d+) of 179", total)
    assert counted and len(lines) == 179
    for state, count in zip(STATES, counted.groups(), strict=True):
        assert sum(f"  {state}  " in f"{line}  " for line in lines) == int(count)


def test_a_model_that_there_is_not_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--model", "lane"])
    assert ended.value.code == 2 and "lane" in capsys.readouterr().err
