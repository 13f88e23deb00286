"""The option --seed of the commands that draw, which has one bound wherever it is read."""

from __future__ import annotations

import argparse

from record.options import SEEDS, Option

SEED = Option("seed", "", int, 1, *SEEDS)


def add_seed(command: argparse.ArgumentParser, draws: str) -> None:
    """The option; `draws`: what it is for."""
    command.add_argument("--seed", type=SEED.read, default=SEED.default, help=f"{draws} (default: %(default)s)")
