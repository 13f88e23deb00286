"""The option --seed of the commands that draw, which has one bound wherever it is read."""

from __future__ import annotations

import argparse

SEED_MAX = 2**53 - 1


def add_seed(command: argparse.ArgumentParser, draws: str) -> None:
    """The option; `draws`: what it is for."""
    command.add_argument("--seed", type=_seed, default=1, help=f"{draws} (default: %(default)s)")


def _seed(text: str) -> int:
    """The number. Raises ArgumentTypeError."""
    if not text.isdecimal() or len(text) > len(str(SEED_MAX)) or int(text) > SEED_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be a whole number from 0 to {SEED_MAX}")
    return int(text)
