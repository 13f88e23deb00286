"""The parser of all command lines: where it refuses a misspelt word, it says what that may have been meant
for. Standard library alone, because the judge has it, too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from engine.errors import nearest


class Parser(argparse.ArgumentParser):
    """Takes no part of an option for the whole."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **settings})
        self._given: list[str] = []

    def hinted(self, message: str) -> str:
        """What argparse complains of. Where it misses an option, the one that was meant is among those that
        nobody knows."""
        if not message.startswith("the following arguments are required"):
            return message
        flags = (word for word in self._given if word.startswith("--"))
        return message + "".join(f"; {flag}{perhaps}" for flag, perhaps in self._near(flags).items())

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Refuse what nobody knows here, where the options are known that it may have been meant for."""
        self._given = [*(sys.argv[1:] if args is None else args)]
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = self._near(unknown)
            # Behind several options a neighbour says whose it is.
            several = sum(word.startswith("-") for word in unknown) > 1
            hints = dict.fromkeys(f"; {word}{hint}" if several else hint for word, hint in near.items())
            self.error(f"unrecognized arguments: {' '.join(unknown)}{''.join(hints)}")
        return options, unknown

    def _near(self, words: Iterable[str]) -> dict[str, str]:
        """The options that words may have been meant for which are none."""
        known = self._option_string_actions
        flags = (word.partition("=")[0] for word in words)
        near = {flag: nearest(flag, known) for flag in flags if flag not in known}
        return {flag: perhaps for flag, perhaps in near.items() if perhaps}

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # Python says what a word may have been meant for from 3.14 on.
        if action.choices is not None and value not in action.choices:
            known = [*map(str, action.choices)]
            told = f"invalid choice: {value!r}{nearest(value, known)} (choose from {', '.join(known)})"
            raise argparse.ArgumentError(action, told)
