"""Defects that the tree has already: the mutants that ship, and the rules that the simulator takes away. Each as an edit."""

from collections.abc import Iterable, Iterator

from chaos import planting
from chaos.channels import mutants as channel_mutants
from chaos.mutants.of_jobs import MUTANTS
from chaos.simulate.removals import REMOVALS
from tests.mutation.edits import ROOT, Edit, from_texts


def shipped() -> Iterator[Edit]:
    """The mutants of jobs and of channels that change scripts; the others are planted in processes of a drill."""
    for mutant in (*MUTANTS.values(), *channel_mutants.MUTANTS.values()):
        if mutant.edits:
            yield _edit(f"mutant:{mutant.name}", "mutant", mutant.edits)


def removals() -> Iterator[Edit]:
    """The rules, one after the other, taken away."""
    for removal in REMOVALS:
        yield _edit(f"removal:{removal.rule}:{removal.what}", "removal", removal.edits)


def _edit(id: str, operator: str, edits: Iterable[planting.Edit]) -> Edit:
    texts = planting.planted(edits)
    return from_texts(id, operator, [(str(path.relative_to(ROOT)), path.read_text(), text) for path, text in texts.items()])
