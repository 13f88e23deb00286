"""Names of the engine keep to the glossary in CONTRIBUTING: a word that the field has no use for does not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: A word that no name of the engine has -> what the glossary says instead.
PRIVATE = {
    "hear": "receive, notify or note",
    "heard": "received or notified",
    "hears": "receives or notes",
    "hungry": "wants jobs",
    "mould": "header template",
    "alike": "same as the last",
    "face": "counterpart",
    "news": "updates",
    "marker": "wake-up, or the work that it tells of",
    "turn": "permit, time slice or virtual time",
    "turns": "permits, time slices or virtual time",
}
#: Names that carry such a word for a reason.
EXCUSED = {"news": "so the key of the updates is called on the server"}


def names(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each class, function, parameter and assigned attribute."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


def words(name: str) -> set[str]:
    """`ClassRotation` and `class_rotation` -> class, rotation."""
    return set(re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower().split("_"))


def private_names(paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} {name}: {PRIVATE[word]}"
        for path in paths
        for line, name in names(path.read_text())
        if name not in EXCUSED
        for word in sorted(words(name) & PRIVATE.keys())
    ]


def test_names_of_the_engine_have_the_words_of_the_glossary() -> None:
    assert private_names(sorted((ROOT / "engine").rglob("*.py"))) == []


def test_a_private_word_is_found_in_every_kind_of_name() -> None:
    source = "class Mould:\n    def hear(self, hungry):\n        self.other_face = heard = 1\n"
    assert {name for _, name in names(source) if words(name) & PRIVATE.keys()} == {
        *("Mould", "hear", "hungry", "other_face", "heard")
    }


def test_the_glossary_has_some_forty_words_with_one_meaning_each() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", glossary(), re.MULTILINE)[2:]
    assert len(rows) >= 40 and len({word for word, _ in rows}) == len(rows)
    assert [word for word, meaning in rows if len(meaning.split()) > 25] == []


def glossary() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.partition("[start:glossary]")[2].partition("[end:glossary]")[0]
