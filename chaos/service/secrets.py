"""What a service keeps to itself: passwords of its urls, and values of its variables, are in no text of the harness.

A variable's value is shown as `$NAME`, a password as `***`. A shorter one than `LENGTH_LEAST` is left where it stands, because
its letters stand everywhere; in a url it is hidden nevertheless.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from chaos.service import placeholders
from engine.errors import HIDDEN, redacted

LENGTH_LEAST = 6

#: The user and the password of a url, and an option that is one.
_USER = re.compile(r"://(.*)@", re.DOTALL)
_OPTION = re.compile(r"(?:password|passwd|pwd|secret|token|api_?key)\s*=\s*([^&\s]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Secrets:
    """`shown`: each secret, with what stands in its place; the longer ones first."""

    shown: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def hide(self, text: str) -> str:
        """The text without them, and without the passwords of other urls."""
        for secret, instead in self.shown:
            text = text.replace(secret, instead)
        return redacted(text)

    def hide_in(self, log: Path) -> None:
        """Take them out of a log that nobody writes any more, line by line. Raises OSError."""
        fresh, changed = log.with_suffix(".tmp"), False
        with log.open("rb") as lines, fresh.open("wb") as kept:
            for line in lines:
                hidden = os.fsencode(self.hide(os.fsdecode(line)))
                changed |= hidden != line
                kept.write(hidden)
        if changed:
            fresh.replace(log)
        else:
            fresh.unlink()


def secrets_of(environment: Mapping[str, str], urls: Iterable[str] = (), passwords: Iterable[str] = ()) -> Secrets:
    """The secrets of a service: its variables, texts in which urls may stand, and passwords."""
    found = {one: HIDDEN for text in (*urls, *environment.values()) for one in passwords_in(text)}
    found |= dict.fromkeys(passwords, HIDDEN)
    for name, value in environment.items():
        found |= dict.fromkeys(placeholders.between(value), f"${name}")
    written = {form: instead for secret, instead in found.items() for form in _forms(secret) if len(form) >= LENGTH_LEAST}
    return Secrets(tuple(sorted(written.items(), key=lambda one: -len(one[0]))))


def passwords_in(text: str) -> Iterator[str]:
    """The passwords of a text that is a url, as it spells them and as they are."""
    user = _USER.search(text)
    spelt = [] if user is None else [user[1].partition(":")[2] or user[1]]
    for one in (*spelt, *_OPTION.findall(text)):
        yield from (one, unquote(one))


def _forms(secret: str) -> Iterator[str]:
    """A secret as texts spell it: as it is, line by line, and as Python, JSON and urls write it."""
    yield from (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret))
    yield from (line.strip() for line in secret.splitlines())
