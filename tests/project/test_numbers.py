"""Numbers and lists in the pages that the code knows: how many ways, mutants, checks and faults there are."""

import re
from pathlib import Path

import pytest

from bench.channels.workload import CHANNELS
from bench.peers.libraries import LIBRARIES
from chaos.channels.mutants import MUTANTS as OF_CHANNELS
from chaos.mutants import of_jobs, of_services
from chaos.scenarios.bench import DIRECTLY, drawn
from chaos.scenarios.mischief import MUTANTS as OF_FOREIGN_CLIENTS
from chaos.spec import RunSpec
from reports.checks import CHECKS
from reports.corrupt.command import CATALOGUE
from reports.corrupt.kinds import CHANNEL_KINDS, KINDS

ROOT = Path(__file__).resolve().parents[2]

WORDS = (
    *("no", "one", "two", "three", "four", "five", "six", "seven", "eight"),
    *("nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
)


def told(page: str) -> str:
    return " ".join((ROOT / page).read_text().split())


WAYS, OTHERS, JOBS, DSPS = map(len, (KINDS, CHANNEL_KINDS, of_jobs.MUTANTS, OF_CHANNELS))
FOREIGN, SERVICES = (WORDS[len(mutants)] for mutants in (OF_FOREIGN_CLIENTS, of_services.MUTANTS))
OF_PAGES = [
    ("docs/proof.md", f"{WAYS} ways for jobs, {OTHERS} for channels"),
    ("docs/proof.md", f"in {WAYS} ways ({OTHERS} others for a run of channels, {WAYS + OTHERS} in all)"),
    ("docs/proof.md", f"{JOBS} mutants of jobs, {DSPS} of channels, {FOREIGN} of a foreign client, {SERVICES} of a service"),
    ("docs/commands.md", f"{WORDS[len(LIBRARIES) - 1]} other job queues"),
    ("docs/commands.md", f": {len(CHANNELS)} channels with"),
    ("chaos/verbs.py", f"subscribers of {len(CHANNELS)} channels"),
]


@pytest.mark.parametrize(("page", "words"), OF_PAGES)
def test_a_page_has_the_number_of_the_code(page: str, words: str) -> None:
    assert CATALOGUE and words in told(page)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "Makefile", "docs/verification.md", "docs/commands.md"])
def test_a_page_has_the_number_of_faults_of_the_usual_drill(page: str) -> None:
    faults = drawn(RunSpec(id="bench", seed=1, direct=DIRECTLY)).plan.faults
    said = re.findall(r"make bench [^.|]*?(\w+) faults", told(page))
    assert said and set(said) == {WORDS[len(faults)]}


def test_the_page_of_proofs_has_each_mutant_and_the_check_that_catches_it() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| `(\w+)` by (\w+) \|$", (ROOT / "docs/proof.md").read_text(), re.MULTILINE)
    mutants = [*of_jobs.MUTANTS.values(), *OF_CHANNELS.values()]
    assert sorted(rows) == sorted((mutant.name, mutant.verdict, mutant.check) for mutant in mutants)
    for one in (*OF_FOREIGN_CLIENTS.values(), *of_services.MUTANTS.values()):
        assert re.search(rf"\b{one.name}`[^|]{{0,120}} must be `{one.verdict}` by {one.check}\b", told("docs/proof.md")), one.name


def test_the_page_of_verification_has_each_check() -> None:
    rows = re.findall(r"^\| ([HJP]\d+) \| ", (ROOT / "docs/verification.md").read_text(), re.MULTILINE)
    assert rows == [check.id for check in CHECKS]
