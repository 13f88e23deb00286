"""Calls of the corpus with one thing changed: a key, a word, the clock. What comes of each is told in a line.

The corpus reaches each line of a script with few values. Here its richest call of each script meets wrong and missing keys, and
words beside those that it was sent with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.conformance.calls.replay import Kept, Player
from tests.conformance.calls.text import Episode, Notation, Step

#: How much later the server's clock is (ms).
LATER_MS = (1, 1_000, 60_000, 86_400_000)
_NUMBER = re.compile(rb"\d{1,15}")
#: Of a reply and of a word, so much is told as it is.
_SHOWN = 60


def richest(calls: Iterable[tuple[Episode, list[str]]]) -> Mapping[str, Episode]:
    """Of each script the call of which most is told, with the steps before it."""
    found: dict[str, tuple[int, Episode]] = {}
    for episode, lines in calls:
        for at, (step, told) in enumerate(zip(episode.steps, lines, strict=True), 1):
            if step.script and " -> ERROR " not in told and len(told) > found.get(step.script, (0,))[0]:
                found[step.script] = len(told), replace(episode, steps=episode.steps[:at])
    return {script: episode for script, (_, episode) in sorted(found.items())}


def pinned(player: Player, calls: Iterable[tuple[Episode, list[str]]]) -> Iterator[str]:
    """Of each call a line for what comes of each change, and one for all changes after which it comes to the same."""
    for script, episode in richest(calls).items():
        yield f"{script}, of {episode.name}"
        (_, plain), *others = _told(player, episode)
        yield f"  {plain}"
        for outcome in ("refused", plain):
            if names := [what for what, found in others if found == outcome]:
                yield f"  {'the same' if outcome == plain else outcome}: {', '.join(names)}"
        yield from (f"  {what}: {outcome}" for what, outcome in others if outcome not in ("refused", plain))


def _told(player: Player, episode: Episode) -> Iterator[tuple[str, str]]:
    """Each change of the last call in words, and what comes of it; `refused`: an error that names the key, and no change."""
    notation, step = Notation(episode.prefix), episode.steps[-1]
    kept = player.kept(episode)
    changes = [("", "", (), step), *_changes(step, kept, notation)]
    replies = player.varied(episode, kept, [(first, varied) for _, _, first, varied in changes])
    for (what, key, _, _), (before, reply, after) in zip(changes, replies, strict=True):
        lines, text = [*notation.changes(before, after)], notation.reply(reply)
        if key and not lines and text.startswith(f"ERROR WRONGTYPE the key {key} is a "):
            yield what, "refused"
        else:
            digest = hashlib.sha1("\n".join((text, *lines)).encode(), usedforsecurity=False).hexdigest()[:8]
            yield what, f"{text if len(text) <= _SHOWN else text[:_SHOWN] + '..'}, {len(lines)} keys, {digest}"


def _changes(step: Step, kept: Kept, notation: Notation) -> Iterator[tuple[str, str, tuple[tuple[Any, ...], ...], Step]]:
    """In words, the key that becomes one of another type, the commands before the call, and the call."""
    for key in dict.fromkeys((*step.keys, *sorted(kept))):
        name, kind = notation.brief(key), kept.get(key, (b"", 0, b""))[0]
        other = ("SET", key, "x") if kind != b"string" else ("RPUSH", key, "x")
        yield f"{name} of another type", key.decode("latin-1"), (("DEL", key), other), step
        if kind:
            yield f"{name} gone", "", (("DEL", key),), step
    for at, word in enumerate(step.arguments):
        for new in _beside(word):
            words = (*step.arguments[:at], new, *step.arguments[at + 1 :])
            yield f"{at + 1} {notation.brief(word)[:_SHOWN]} as {notation.brief(new)}", "", (), replace(step, arguments=words)
    for later_ms in LATER_MS:
        yield f"{later_ms} ms later", "", (), replace(step, now_ms=step.now_ms + later_ms)


def _beside(word: bytes) -> Iterator[bytes]:
    """Not below zero: servers understand a negative place in different ways."""
    if _NUMBER.fullmatch(word):
        yield from dict.fromkeys(b"%d" % number for number in (int(word) + 1, max(int(word) - 1, 0), 0) if number != int(word))
    elif word:
        yield b""
