"""`python -m chaos faults`: the table of all kinds of fault, from the catalogue and from the docstrings of their files."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from chaos.catalogue import CHANNELS, KINDS, FaultKind, Loss
from chaos.channels.faults import FAULTS as OF_CHANNELS
from chaos.errors import HarnessError
from chaos.faults import FAULTS as OF_JOBS
from chaos.interrupts import Interrupts
from chaos.processes import ROOT
from chaos.topologies import TOPOLOGIES

PAGE = ROOT / "docs" / "faults.md"

HEAD = """# Kinds of fault

<!-- Written by `python -m chaos faults --docs` from chaos/catalogue.py and the docstrings in chaos/faults. -->

A drill carries out faults of these kinds. No fault believes its own injection: a *witness* looks at the world for its effect, and
a run whose faults were not seen to take effect, or not seen to heal, is `unknown` (checks H1 and H2 of
[verification](verification.md)). *Seconds* are about the time from the injection until it is seen to have healed. A kind may come
*during* another one where neither hides what shows the other; the two then hit different processes. *Loss* is what a kind may
cost of the acknowledged writes, by durability. It is written into the run's spec before the load begins, and whatever else is
lost is a violation.

"""

COLUMNS = ("kind", "what happens", "what shows it", "guarantee attacked", "loss", "seconds", "topologies", "loads", "during")

#: What the docstring of a kind says of its first two stages, each up to the next one.
STAGES = re.compile(r"inject: (?P<inject>.+?)\.? witness: (?P<witness>.+?)\.? heal: ")


def show(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Print the table; with `--docs` write the page, too. Returns 0. Raises HarnessError when the page cannot be written."""
    print(table(), end="", flush=True)
    if arguments.docs:
        try:
            PAGE.write_text(page())
        except OSError as error:
            raise HarnessError(f"{PAGE.name} cannot be written: {error.strerror or error}") from error
    return 0


def page() -> str:
    """The content of docs/faults.md."""
    return HEAD + table()


def table() -> str:
    """The table, in Markdown."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(row, KINDS.values())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(kind: FaultKind) -> tuple[str, ...]:
    """One kind of fault."""
    inject, witness = stages(kind.name, (OF_CHANNELS if kind.loads == (CHANNELS,) else OF_JOBS)[kind.name])
    return (
        f"`{kind.name}`",
        inject,
        witness,
        kind.attacks,
        loss(kind.loss),
        str(kind.seconds),
        "all" if kind.topologies == TOPOLOGIES else ", ".join(kind.topologies),
        ", ".join(kind.loads),
        names(kind.during),
    )


def stages(name: str, make: Callable[..., Any]) -> tuple[str, str]:
    """What happens at the inject of a kind, and what its witness sees, in the words of its docstring. Raises HarnessError."""
    text = " ".join((inspect.getdoc(make) or "").split())
    found = STAGES.search(text)
    if found is None:
        raise HarnessError(f"the docstring of fault {name!r} has no `inject: ... witness: ... heal: ...`")
    return found["inject"].replace("|", "\\|"), found["witness"].replace("|", "\\|")


def loss(declared: Loss | None) -> str:
    """What a kind may lose."""
    return f"with {names(declared.durabilities)}: {declared.text}" if declared else "none"


def names(them: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in them) or "none"
