"""A mischief run with a planted defect is violated by the check that is named for it."""

import json
from pathlib import Path

import pytest

from chaos.cli import main
from chaos.interrupts import Interrupts
from chaos.scenarios.mischief import MUTANTS


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", sorted(MUTANTS))
def test_a_mutant_is_caught_by_the_check_that_is_named_for_it(model: str, tmp_path: Path) -> None:
    mutant = MUTANTS[model]
    with Interrupts() as caught:
        code = main(["run", "mischief", "--model", model, "--mutant", mutant.name, "--runs", str(tmp_path)], caught)
    verdict = json.loads((tmp_path / "latest" / "verdict.json").read_text())
    assert (code, verdict["verdict"]) == (1, mutant.verdict)
    assert {check["id"]: check["verdict"] for check in verdict["checks"]}[mutant.check] == "violated"
