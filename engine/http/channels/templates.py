"""Texts with parts of a channel's name in them, as DSPS writes them: `{{.channel.id}}` is what the group `id` of the pattern
took."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from engine.errors import Malformed

_PLACE = re.compile(r"\{\{\s*\.channel\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def check(field: str, text: object, groups: Iterable[str]) -> str:
    """A text whose places all name a group of the pattern. Raises Malformed."""
    known = sorted(groups)
    if not isinstance(text, str):
        raise Malformed(field, text, "text, with {{.channel.NAME}} for a named group of the pattern")
    if "{{" in _PLACE.sub("", text) or any(name not in known for name in _PLACE.findall(text)):
        shown = ", ".join(known) if known else "none"
        raise Malformed(field, text, f"text in which {{{{.channel.NAME}}}} names a group of the pattern; it has {shown}")
    return text


def filled(text: str, groups: Mapping[str, str]) -> str:
    """The text for one channel."""
    return _PLACE.sub(lambda place: groups[place.group(1)], text)
