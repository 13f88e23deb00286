"""Calls of the corpus with one thing changed: a key, a word, the clock. What comes of each is told in a line.

The corpus reaches each line of a script with few values. Here some of its calls of each script meet wrong and missing keys, ends
of keys, what they leave behind, and words beside those that they were sent with.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.conformance.calls.replay import Command, Kept, Player
from tests.conformance.calls.text import Episode, Notation, Step
from tests.engine.desk import START_MS

#: How much later the server's clock is (ms).
_LATER_MS = (1, 1_000, 60_000, 86_400_000)
_NUMBER = re.compile(rb"\d{1,15}")
_DIGITS = re.compile(r"\d+")
#: So many calls of a script, as long as each tells so many words that those before it do not.
_CALLS_MAX, _NEWS_MIN = 2, 4
_EXPIRES_MS = START_MS + 10**9
#: Of a word, so much is told.
_SHOWN = 60
_OTHER = "of another type"


def scripts_called(path: Path) -> list[str]:
    """The scripts with a call in a file of the corpus."""
    return sorted(set(re.findall(r"^@\S+ (\w+) ", path.read_text(), re.M)))


def pinned(player: Player, script: str, calls: Iterable[tuple[Episode, list[str]]]) -> Iterator[str]:
    """Of each chosen call what it comes to, and for each key and word the changes after which it comes to something else."""
    for episode in _chosen(script, calls):
        yield f"{script}, of {episode.name}"
        (_, _, plain), *others = _told(player, episode)
        yield f"  {plain}"
        refused = [f"{what} {how}" for what, how, found in others if found == "refused"]
        yield from (f"  refused: {', '.join(refused)}",) if refused else ()
        told: dict[str, list[str]] = defaultdict(list)
        for what, how, found in others:
            if found not in ("refused", plain):
                told[what].append(f"{how} {found.rpartition(' ')[2]}")
        yield from (f"  {what}: {', '.join(found)}" for what, found in told.items())


def _chosen(script: str, calls: Iterable[tuple[Episode, list[str]]]) -> Iterator[Episode]:
    """Some calls of a script, with the steps before them: of which most is told that is not told of those before."""
    found: dict[str, Episode] = {}
    for episode, lines in calls:
        for at, (step, told) in enumerate(zip(episode.steps, lines, strict=True), 1):
            if step.script == script and " -> ERROR " not in told:
                found.setdefault(told, replace(episode, steps=episode.steps[:at]))
    words = {line: {_DIGITS.sub("0", word) for word in line.split()} for line in found}
    known: set[str] = set()
    for _ in range(min(_CALLS_MAX, len(words))):
        best = max(words, key=lambda line: (len(words[line] - known), len(line)))
        if len(words[best] - known) < _NEWS_MIN:
            break
        known |= words[best]
        yield found[best]


def _told(player: Player, episode: Episode) -> Iterator[tuple[str, str, str]]:
    """Each change of the last call in words, and what comes of it; `refused`: an error that names the key, and no change."""
    notation, step = Notation(episode.prefix), episode.steps[-1]
    kept = player.kept(episode)
    changes = [(b"", "", (), step), *_changes(step, kept, player.command(step, episode.piece_words), notation)]
    replies = player.varied(episode, kept, [(first, varied) for _, _, first, varied in changes])
    for (what, how, _, _), (before, reply, after) in zip(changes, replies, strict=True):
        lines, text = [*notation.changes(before, after)], notation.reply(reply)
        digest = hashlib.sha1("\n".join((text, *lines)).encode(), usedforsecurity=False).hexdigest()[:6]
        refused = how == _OTHER and not lines and text.startswith(f"ERROR WRONGTYPE the key {what.decode('latin-1')} is a ")
        name = notation.brief(what) if what.startswith(notation.prefix) else what.decode("latin-1")
        yield name, how, "refused" if refused else f"{text}, {len(lines)} keys, {digest}"


def _changes(step: Step, kept: Kept, call: Command, notation: Notation) -> Iterator[tuple[bytes, str, tuple[Command, ...], Step]]:
    """What is changed, how, the commands before the call, and the call."""
    for key in dict.fromkeys((*step.keys, *sorted(kept))):
        kind = kept.get(key, (b"", 0, b""))[0]
        yield key, _OTHER, (("DEL", key), ("SET", key, "x") if kind != b"string" else ("RPUSH", key, "x")), step
        if kind:
            yield key, "gone", (("DEL", key),), step
    yield b"each key", "expires", tuple(("PEXPIREAT", key, _EXPIRES_MS) for key in kept), step
    yield b"each key", "as after it", (call,), replace(step, now_ms=step.now_ms + 1_000)
    for at, word in enumerate(step.arguments):
        for new in _beside(word):
            words = (*step.arguments[:at], new, *step.arguments[at + 1 :])
            what = f"{at + 1} {notation.brief(word)[:_SHOWN]}".encode("latin-1")
            yield what, notation.brief(new), (), replace(step, arguments=words)
    for later_ms in _LATER_MS:
        yield b"later", f"{later_ms} ms", (), replace(step, now_ms=step.now_ms + later_ms)


def _beside(word: bytes) -> Iterator[bytes]:
    """Not below zero: servers understand a negative place in different ways. A server's clock knows parts of a ms."""
    if _NUMBER.fullmatch(word):
        yield from dict.fromkeys(b"%d" % number for number in (int(word) + 1, max(int(word) - 1, 0)) if number != int(word))
        if len(word) == len(str(START_MS)):
            yield word + b".9"
    elif word:
        yield b""
