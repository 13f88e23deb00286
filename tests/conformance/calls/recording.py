"""Catches the calls that tests send, and chooses those that reach most lines of the scripts.

The tests know how to bring about each state that the rules speak of. What they send is stored, not what they assert: a test that
says little of a reply lends its calls all the same.
"""

import io
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from redis.connection import AbstractConnection

from engine.redis import scripts
from engine.redis.scripts import Script, all_models, scripts_folder
from tests.conformance.calls.replay import Player, scripts_of
from tests.conformance.calls.text import Episode, Step
from tests.engine.desk import EXPIRE, START_MS, WRITES
from tests.engine.helpers.pieces import SMALL
from tests.mutation.lua_marks import mark

#: What a test may send besides, and what no step can be made of: it waits, or what it says is of one server alone.
_NEVER = {"BLPOP", "BRPOP", "BLMOVE", "RESTORE", "CONFIG", "MULTI", "SETEX", "PSETEX", "GETEX", "SELECT", "FCALL", "CLUSTER"}
_PLAIN = {*WRITES, "SETRANGE", "APPEND", "COPY", "MOVE", "ZINCRBY"} - {"PUBLISH", *_NEVER}
#: Episodes of tests at another time of the server are told from START_MS on.
_HOUR_MS, _SECOND_MS = 3_600_000, 1000
_STEPS_MAX = 90


class Catcher:
    """A plugin of pytest: the episodes by model, each from one FLUSHALL to the next."""

    def __init__(self) -> None:
        self.found: dict[str, dict[tuple[Step, ...], Episode]] = {}
        self._known: dict[str, list[tuple[str, int, Script]]] = {}
        for piece_words in (scripts.PIECE_WORDS, SMALL):
            for model in all_models(scripts_folder()):
                for script in scripts_of(model, piece_words).values():
                    self._known.setdefault(script.digest, []).append((model, piece_words, script))
        self._begin("")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """What is drawn in a test is drawn the same way again."""
        drawn = random.Random(item.nodeid).randbytes
        connection, thread = AbstractConnection, threading.get_ident()
        send = connection.send_packed_command

        def sent(to: Any, command: Any, check_health: bool = True) -> Any:
            packed = b"".join(command) if isinstance(command, (list, tuple)) else command
            if threading.get_ident() != thread or getattr(to, "db", 0):
                self._fit = False
            for words in _commands(packed):
                self._sent(words)
            return send(to, command, check_health)

        self._begin(item.nodeid)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "urandom", drawn)
            patch.setattr(random, "_urandom", drawn)
            patch.setattr(connection, "send_packed_command", sent)
            result = yield
        self._end()
        return result

    def _begin(self, name: str) -> None:
        self._name, self._steps, self._fit = name, [], True
        self._now_ms = START_MS
        self._models: set[tuple[str, int]] = set()

    def _end(self) -> None:
        calls = sum(1 for step in self._steps if step.script)
        if self._fit and self._models and calls > 1 and len(self._steps) <= _STEPS_MAX:
            model, piece_words = min(self._models)
            episode = Episode(self._name.removeprefix("tests/"), piece_words, tuple(self._steps))
            self.found.setdefault(model, {}).setdefault(episode.steps, episode)
        self._begin(self._name)

    def _sent(self, words: list[bytes]) -> None:
        name = words[0].decode().upper()
        if name == "FLUSHALL":
            self._end()
        elif name in ("EVAL", "EVALSHA"):
            self._script(name, words)
        elif name in _PLAIN:
            self._add("", (), self._lasting(words))
        elif name in _NEVER:
            self._fit = False

    def _script(self, name: str, words: list[bytes]) -> None:
        text = words[1].decode()
        if name == "EVAL" and text == EXPIRE:
            self._now_ms = int(words[4])
        elif name == "EVALSHA" and text in self._known:
            known, count = self._known[text], int(words[2])
            keys, arguments = tuple(words[3 : 3 + count]), tuple(words[3 + count :])
            models = {(model, piece_words) for model, piece_words, _ in known}
            self._models = self._models & models if self._models else models
            script = known[0][2]
            # What is restored is in the words of one version of one server.
            self._fit = self._fit and bool(self._models) and "'RESTORE'" not in script.text
            if "now_ms" in script.arguments and (given := arguments[script.arguments.index("now_ms")]):
                self._now_ms = int(given)
            self._add(script.name, keys, arguments)
        else:
            self._fit = self._fit and name == "EVAL" and "no-writes" in text.partition("\n")[0]

    def _add(self, script: str, keys: tuple[bytes, ...], arguments: tuple[bytes, ...]) -> None:
        real_ms = time.time() * 1000
        told = tuple(_told(argument, real_ms) for argument in arguments)
        # A time inside of a longer word would be another one at each recording.
        early = str(int(real_ms))[:5].encode()
        self._fit = self._fit and not any(re.search(rb"(?<!\d)%b\d{8}(?!\d)" % early, each) for each in (*told, *keys))
        self._steps.append(Step(self._now_ms, script, keys, told))

    def _lasting(self, words: list[bytes]) -> tuple[bytes, ...]:
        """A command with a time at which a key ends, for one that says after how long."""
        words = [*words]
        name = words[0].decode().upper()
        if name in ("EXPIRE", "PEXPIRE"):
            words[0], at, unit = b"PEXPIREAT", 2, 1 if name == "PEXPIRE" else _SECOND_MS
            words[at] = b"%d" % (self._now_ms + int(words[at]) * unit)
        elif name == "SET":
            for at in range(3, len(words) - 1):
                if words[at].upper() in (b"EX", b"PX"):
                    unit = _SECOND_MS if words[at].upper() == b"EX" else 1
                    words[at], words[at + 1] = b"PXAT", b"%d" % (self._now_ms + int(words[at + 1]) * unit)
        return tuple(words)


def _told(raw: bytes, real_ms: float) -> bytes:
    """A word with a time near that of the server's clock, which is START_MS in the corpus."""
    if re.fullmatch(rb"\d{13}", raw) and abs(int(raw) - real_ms) < 24 * _HOUR_MS:
        return b"%d" % (START_MS + round((int(raw) - real_ms) / _SECOND_MS) * _SECOND_MS)
    return raw


def _commands(packed: bytes) -> Iterator[list[bytes]]:
    stream = io.BytesIO(packed)
    while head := stream.readline():
        words: list[bytes] = []
        for _ in range(int(head[1:])):
            words.append(stream.read(int(stream.readline()[1:])))
            stream.readline()
        yield words


def lines_of(player: Player, episode: Episode) -> frozenset[bytes | str]:
    """The marks of the lines that an episode reaches, and the names of its scripts; the player plays `marked_scripts`, each as
    `telling` makes it."""
    replies = [reply for step, reply in zip(episode.steps, player.replies(episode), strict=True) if step.script]
    return frozenset(mark for reply in replies for mark in reply.split()) | {step.script for step in episode.steps}


#: Where a script keeps its marks: in a table that it has anyway, so that for the loader there is no name that nobody declares.
_MARKS = "KEYS._marks"


def telling(text: str) -> str:
    """A script that says which of its lines ran, and nothing else."""
    first, _, body = text.partition("\n")
    return (
        f"{first}\n{_MARKS} = {{}} local function _script() {body}\nend pcall(_script) local set = {{}} "
        f"for mark in pairs({_MARKS}) do set[#set + 1] = mark end return table.concat(set, ' ')\n"
    )


def marked_scripts(folder: Path) -> Path:
    """A copy of the scripts in which each line marks that it ran."""
    shutil.copytree(scripts_folder(), folder)
    last = 0
    for path in sorted(folder.rglob("*.lua")):
        marked, marks = mark(path.read_text(), last)
        if path.parent.name != "published":
            path.write_text(marked.replace("_marks[", f"{_MARKS}["))
            last = max((last, *marks))
    return folder


def choose(reached: Mapping[Episode, frozenset[bytes | str]], costs: Mapping[Episode, int], most: int) -> Iterator[Episode]:
    """Episodes with each script, then with each of their lines: next comes what adds most for its length, until they are too long
    in all."""
    left, everything = dict(reached), frozenset[bytes | str]().union(*reached.values())
    names, done = {name for name in everything if isinstance(name, str)}, set[bytes | str]()
    for wanted in (names, everything):
        while left and not wanted <= done:
            best = max(left, key=lambda one: len(left[one] & wanted - done) / costs[one])
            gained, most = left.pop(best) & wanted - done, most - costs[best]
            if not gained or most < 0:
                break
            done |= reached[best]
            yield best
