"""Calls as readable text: words, replies and changes of keys. What stands before ` -> ` is read back to the byte."""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engine.desk import START_MS

#: A word that stands as it is: not one that begins like a time, a prefix or a quoted word.
_BARE = re.compile(r"""(?![@~]|b['"]|(?:->|\||)$)[!-~]*""")
_TOKEN = re.compile(r"""~?b'(?:\\.|[^'\\])*'|~?b"(?:\\.|[^"\\])*"|\S+""")
#: What is longer is told by its begin and a digest.
_LONG = 200
#: Times within years of the start are told from it: those of the queue, and keys that live for long.
_NEAR_MS = 200_000_000_000
#: What an error says of its place in the script, which differs from server to server and moves with each edit.
_PLACE = re.compile(r"^ERR (?=.*_script:)|user_script:\d+: |\s*script:[^:]*(:\d+\.?)?$")
#: The keys of a server: the type, when it ends (ms), and the raw value of each.
Keys = dict[bytes, tuple[bytes, int, Any]]


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a script at a time (ms); or, where the script is '', a command of somebody else."""

    now_ms: int
    script: str
    keys: tuple[bytes, ...]
    arguments: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Episode:
    """Steps that begin with an empty server, with scripts whose pieces have so many words. The name says where from."""

    name: str
    piece_words: int
    steps: tuple[Step, ...]

    @property
    def prefix(self) -> bytes:
        """What most of its keys begin with."""
        return next((key.rpartition(b":")[0] + b":" for step in self.steps for key in step.keys), b"")


class Notation:
    """How bytes are written in an episode: its prefix as ~, times as @ with the milliseconds since the start."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix

    def word(self, raw: bytes) -> str:
        """A word without spaces."""
        if re.fullmatch(rb"\d{13}", raw) and abs(int(raw) - START_MS) < _NEAR_MS:
            return f"@{int(raw) - START_MS}"
        if raw.startswith(self.prefix) and len(self.prefix) > 1:
            return f"~{self._quoted(raw[len(self.prefix) :])}"
        return self._quoted(raw) or "b''"

    def _quoted(self, raw: bytes) -> str:
        text = raw.decode("latin-1")
        return text if not raw or _BARE.fullmatch(text) else repr(raw)

    def raw(self, token: str) -> bytes:
        """The word that was written so."""
        if token.startswith("@"):
            return b"%d" % (START_MS + int(token[1:]))
        if token.startswith("~"):
            return self.prefix + (self.raw(token[1:]) if token[1:] else b"")
        return ast.literal_eval(token) if token.startswith(("b'", 'b"')) else token.encode("latin-1")

    def call(self, step: Step) -> str:
        """A step, up to the reply."""
        words = [*map(self.word, step.keys), "|", *map(self.word, step.arguments)]
        return " ".join((f"@{step.now_ms - START_MS}", step.script or "*", *words))

    def step(self, line: str) -> Step:
        """The step that was written so."""
        tokens = _TOKEN.findall(line)
        now, script, *words = tokens[: tokens.index("->")]
        bar = words.index("|")
        keys, arguments = (tuple(map(self.raw, part)) for part in (words[:bar], words[bar + 1 :]))
        return Step(START_MS + int(now[1:]), script if script != "*" else "", keys, arguments)

    def reply(self, reply: Any) -> str:
        """Numbers of the protocol have a colon before them; an error has nothing that is the server's own."""
        if isinstance(reply, Exception):
            return f"ERROR {_PLACE.sub('', str(reply)).rstrip()}"
        if isinstance(reply, list):
            return f"[{' '.join(map(self.reply, reply))}]"
        if isinstance(reply, int):
            return f":{self.word(b'%d' % (reply // 1000))}us" if reply > 10**15 else f":{self.word(b'%d' % reply)}"
        return "nil" if reply is None else self.brief(reply)

    def brief(self, raw: bytes) -> str:
        """A word that nobody reads back: of a long one the begin, the length, and a digest."""
        digest = hashlib.sha1(raw, usedforsecurity=False).hexdigest()[:8]
        return self.word(raw) if len(raw) <= _LONG else f"{self.word(raw[:40])}..{len(raw)}#{digest}"

    def changes(self, before: Keys, after: Keys) -> Iterator[str]:
        """A line for each key that is another one now."""
        for key in sorted(before.keys() | after.keys()):
            old, new = before.get(key, (b"", -1, b"")), after.get(key)
            if new is None:
                yield f"    {self.brief(key)} gone"
            elif old != new:
                words = [] if old[0] == new[0] else [new[0].decode()]
                was, now = {} if words else self._items(old[0], old[2]), self._items(new[0], new[2])
                words += [f"-{item}" for item in sorted(was.keys() - now.keys())]
                words += [f"{item}{now[item]}" for item in sorted(now) if was.get(item) != now[item]]
                if old[1] != new[1]:
                    words.append(f"expires {self.word(b'%d' % new[1]) if new[1] >= 0 else 'never'}")
                if words:
                    yield " ".join((f"    {self.brief(key)}", *words))

    def _items(self, kind: bytes, value: Any) -> dict[str, str]:
        flat = isinstance(value, list) and kind in (b"hash", b"zset")
        pairs = [(self.brief(one), other) for one, other in zip(value[::2], value[1::2], strict=True)] if flat else []
        match kind:
            case b"hash":
                return {field: f"={self.brief(text)}" for field, text in pairs}
            case b"zset":
                return {member: f"={self._score(score)}" for member, score in pairs}
            case b"set":
                return dict.fromkeys(map(self.brief, value), "")
            case b"stream":
                return {f"#{at}": f"={self.reply(fields)}" for at, (_, fields) in enumerate(value)}
            case _:
                return {"": f"={self.reply(value)}"}

    def _score(self, raw: bytes) -> str:
        """Servers write one score in different ways."""
        score = float(raw)
        return self.word(b"%d" % score if score.is_integer() else repr(score).encode())


def read(path: Path) -> Iterator[tuple[Episode, list[str]]]:
    """The episodes of a file, each with what its steps came to."""
    for text in path.read_text().split("\n\n"):
        head, _, rest = text.strip("\n").partition("\n")
        name, pieces, prefix = head.removeprefix("# ").rsplit(", ", 2)
        steps, notation = re.split(r"\n(?!    )", rest), Notation(prefix.removeprefix("~ is ").encode())
        yield Episode(name, int(pieces.removeprefix("pieces of ")), tuple(map(notation.step, steps))), steps


def write(path: Path, episodes: Iterable[tuple[Episode, list[str]]]) -> None:
    """What `read` reads."""
    heads = ((f"# {one.name}, pieces of {one.piece_words}, ~ is {one.prefix.decode()}", lines) for one, lines in episodes)
    path.write_text("\n\n".join("\n".join((head, *lines)) for head, lines in heads) + "\n")
