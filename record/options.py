"""Options of the harness's and the judge's command lines. Each is declared once: that of a field of a spec at
the field, with its bounds and its help. It needs next to nothing else, because the judge has it, too."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, replace
from datetime import date
from typing import Any

from engine.errors import nearest

#: Seeds of whatever draws: JSON has each as it is, for every reader.
SEEDS = (0, 2**53 - 1)


class Wrong(argparse.ArgumentTypeError):
    """The text of an option is not what it must be: one line with the option, the text and the bound."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or a word of its own where `word` is set.

    `name`: as it is typed, without dashes. `dest`: its name in the parsed arguments. `kind`: int, float, str,
    another reader of a text, or bool for a flag. `words`: what is said of the default where it is not the
    value. `many`: it may be repeated."""

    name: str
    help: str
    kind: Callable[[str], Any] = str
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    words: str = ""
    dest: str = ""
    metavar: str = ""
    word: bool = False
    required: bool = False
    many: bool = False
    #: Other spellings.
    also: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """Its name in the parsed arguments."""
        return self.dest or self.name.replace("-", "_")

    @property
    def shown(self) -> str:
        """What stands for its value."""
        if self.choices and not self.metavar:
            return "|".join(self.choices)
        return self.metavar or ("N" if self.kind in (int, float) else self.name.upper().replace("-", "_"))

    @property
    def bound(self) -> str:
        """What a value must be, in words; empty where any text is a value."""
        kind = {int: "a whole number", float: "a number"}.get(self.kind)  # pyright: ignore[reportArgumentType, reportCallIssue]
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if kind is None:
            return ""
        if self.low is None:
            return kind
        low, high = number(self.low), "" if self.high is None else number(self.high)
        return f"{kind} from {low} to {high}" if high else f"{kind}, at least {low}"

    @property
    def told(self) -> str:
        """The line of help: what it is, its default, and its bounds."""
        default = self.words or ("" if self.default in (None, "", (), False) else f"default {self.default}")
        most = f"{number(self.low or 0)} to {number(self.high)}" if self.high else ""
        between = "" if self.low is None else most or f"at least {number(self.low)}"
        more = "; ".join(filter(None, (default, between, "may be repeated" if self.many else "")))
        return (f"{self.help} ({more})" if more else self.help).replace("%", "%%")

    def read(self, text: str) -> Any:
        """The value of a text. Raises Wrong."""
        try:
            # Python reads 1_0 and +1, too: a slip of the hand is no other number.
            if self.kind is int and not text.removeprefix("-").isdecimal():
                raise ValueError
            value = self.kind(text)
        except ValueError as error:
            raise Wrong(f"{self.name} is {text!r}: it must be {self.bound or error}") from None
        most = value if self.high is None else self.high
        outside = self.low is not None and not self.low <= value <= most
        if outside or (self.choices and value not in self.choices):
            near = nearest(value, self.choices)
            raise Wrong(f"{self.name} is {text if outside else repr(text)}: it must be {self.bound}{near}")
        return value

    def but(self, **changes: Any) -> Option:
        """The same option where a command has another default, or says more about it."""
        return replace(self, **changes)


def number(value: float) -> str:
    """A bound, without the exponent of large ones."""
    return f"{value:.16g}"


def declared(
    help: str = "", low: int | None = None, high: int | None = None, *, default: Any = MISSING, **more: Any
) -> Any:
    """A field of a spec, with its bounds; with `help` it is an option, too, whose name is that of the field
    unless `name` says another one."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, **more})


def bounds(spec: type[Any]) -> dict[str, tuple[int, int]]:
    """The bounds of the fields of a spec that have any: lowest and highest value."""
    found = {one.name: one.metadata for one in dataclasses.fields(spec)}
    return {name: (told["low"], told["high"]) for name, told in found.items() if told.get("low") is not None}


def options_of(spec: type[Any]) -> dict[str, Option]:
    """The options of a spec by the name of the option: its fields that have a help."""
    found: dict[str, Option] = {}
    for one in dataclasses.fields(spec):
        told: dict[str, Any] = {"default": None if one.default is MISSING else one.default, **one.metadata}
        if told.get("help"):
            name: str = told.pop("name", one.name.replace("_", "-"))
            found[name] = Option(name, kind=str if told["low"] is None else int, **told)
    return found


def day(text: str) -> date:
    """A date in ISO 8601. Raises ValueError."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("a date such as 2026-11-27") from None


def names(text: str) -> tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(filter(None, (name.strip() for name in text.split(","))))
