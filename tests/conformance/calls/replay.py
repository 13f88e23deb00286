"""Plays stored calls on a server: the linked scripts with a virtual clock and without chance, no other Python of the engine."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.simulate.clocked import clocked_text
from chaos.simulate.cutting import with_prelude
from chaos.simulate.wire import Wire
from engine.models.foreign.foreign import REUSED
from engine.redis import scripts
from engine.redis.scripts import FOLDERS, load_model, scripts_folder
from tests.conformance.calls.text import Episode, Keys, Notation, Step
from tests.engine.desk import DUMP, EXPIRE

#: Keys that can be restored: the type, when it ends (ms), and what RESTORE takes.
Kept = Mapping[bytes, tuple[bytes, int, bytes]]
#: What is sent to the server.
Command = tuple[Any, ...]
#: Published between two calls.
_NEXT = "next"
#: The members of a set, the fields of a large hash and all keys have an order that each server process draws anew. Pages here
#: hold all, in one order; so do tables, which each server walks in its own; and every server process has one name.
_ORDERED = Path(__file__).with_name("ordered.lua").read_text()


def scripts_of(model: str, piece_words: int, lua: Path | None = None) -> Mapping[str, scripts.Script]:
    """The scripts of a model by name, linked for pieces of this size."""
    usual, scripts.PIECE_WORDS = scripts.PIECE_WORDS, piece_words
    try:
        return load_model(lua or scripts_folder(), model, () if model in FOLDERS else REUSED)
    finally:
        scripts.PIECE_WORDS = usual


def _keys(dump: Iterable[tuple[bytes, bytes, int, Any]]) -> Keys:
    return {key: (kind, expires, value) for key, kind, expires, value in dump}


class Player:
    """Plays the calls of one model, with the scripts of a folder (None: those of the engine), each as `change` makes it."""

    def __init__(self, wire: Wire, model: str, lua: Path | None = None, change: Callable[[str], str] = str) -> None:
        self._wire, self._model, self._lua, self._change = wire, model, lua, change
        self._digests: dict[tuple[str, int], str] = {}
        self._dump, self._expire = self._loaded([DUMP, EXPIRE])

    def play(self, episode: Episode) -> list[str]:
        """What each step comes to: its own line, and one for each key that it changes and each text that it publishes."""
        replies = self.replies(episode, ("EVALSHA", self._dump, 0), ("PUBLISH", _NEXT, ""))
        before, played, said = {}, [], iter(self._wire.published())
        notation = Notation(episode.prefix)
        for at, step in enumerate(episode.steps):
            reply, dump, _ = replies[3 * at : 3 * at + 3]
            after = _keys(dump)
            published = list(iter(lambda: next(said), (_NEXT, b"")))
            lines = [f"    {notation.word(channel.encode())} hears {notation.reply(text)}" for channel, text in published]
            told = f" -> {notation.reply(reply)}" if step.script else " ->"
            played.append("\n".join((f"{notation.call(step)}{told}", *notation.changes(before, after), *lines)))
            before = after
        return played

    def replies(self, episode: Episode, *after: tuple[Any, ...]) -> list[Any]:
        """The replies of an empty server to the steps, each followed by what is asked then."""
        self._load(episode)
        commands: list[tuple[Any, ...]] = [("FLUSHALL",)]
        wanted, now_ms = [], 0
        for step in episode.steps:
            if step.now_ms != now_ms or not step.script:
                now_ms = step.now_ms
                commands.append(("EVALSHA", self._expire, 0, 1, now_ms, 0))
            wanted += range(len(commands), len(commands) + 1 + len(after))
            commands += (self.command(step, episode.piece_words), *after)
        replies = self._wire.ask(commands)
        return [replies[at] for at in wanted]

    def kept(self, episode: Episode) -> Kept:
        """The keys before its last step."""
        self._load(episode)
        self.replies(replace(episode, steps=episode.steps[:-1]))
        keys = [(key, kind, max(expires, 0)) for key, kind, expires, _ in self._wire.do("EVALSHA", self._dump, 0)]
        dumps = self._wire.ask([("DUMP", key) for key, _, _ in keys])
        return {key: (kind, expires, dump) for (key, kind, expires), dump in zip(keys, dumps, strict=True)}

    def varied(
        self, episode: Episode, kept: Kept, steps: Iterable[tuple[tuple[Command, ...], Step]]
    ) -> Iterator[tuple[Keys, Any, Keys]]:
        """Each step after its own commands, from the same keys: those before it, its reply, and those after it."""
        dumped = ("EVALSHA", self._dump, 0)
        found: dict[tuple[tuple[Command, ...], int], Keys] = {}
        for first, step in steps:
            restored = [("RESTORE", key, expires, dump, "ABSTTL") for key, (_, expires, dump) in kept.items()]
            commands = [("FLUSHALL",), *restored, *first, ("EVALSHA", self._expire, 0, 1, step.now_ms, 0)]
            before = found.get((first, step.now_ms))
            *_, was, reply, after = self._wire.ask(
                [*commands, dumped if before is None else ("ECHO", ""), self.command(step, episode.piece_words), dumped]
            )
            before = found[first, step.now_ms] = before if before is not None else _keys(was)
            yield before, reply, _keys(after)

    def command(self, step: Step, piece_words: int) -> Command:
        """What is sent for a step."""
        if not step.script:
            return step.arguments
        digest = self._digests[step.script, piece_words]
        return ("EVALSHA", digest, len(step.keys), *step.keys, *step.arguments, step.now_ms)

    def _load(self, episode: Episode) -> None:
        wanted = {(step.script, episode.piece_words) for step in episode.steps if step.script} - self._digests.keys()
        if wanted:
            found = scripts_of(self._model, episode.piece_words, self._lua)
            texts = [with_prelude(clocked_text(self._change(found[name].text)), _ORDERED) for name, _ in wanted]
            self._digests |= zip(wanted, self._loaded(texts), strict=True)

    def _loaded(self, texts: Iterable[str]) -> list[str]:
        texts = list(texts)
        for reply in self._wire.ask([("SCRIPT", "LOAD", text) for text in texts]):
            assert not isinstance(reply, Exception), reply
        return [hashlib.sha1(text.encode()).hexdigest() for text in texts]
