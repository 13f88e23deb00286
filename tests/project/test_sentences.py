"""Sentences are short: those of more than 25 words are counted by room, and `tests/shape.toml` bounds how many there are."""

import re
from collections import Counter
from pathlib import Path

from tests.project.test_shape import GENERATED, ROOT, SHAPE

MOST_WORDS = 25
#: A docstring, or comments on lines of their own; of a module and of a script.
PROSE = {".py": r'"""(.*?)"""|((?:^ *#[^\n]*\n)+)', ".lua": r"((?:^ *--[^\n]*\n?)+)"}
#: What is no prose: code, tables, headings, the slots of a script, and the lists of files, tests and removals of a rule.
LISTS = r"^ *```.*?^ *```|^[ >]*\|[^\n]*$|^#+ [^\n]*$|^(?:KEYS|ARGV|REPLY|HEAD|USES|\*\*Where|\*\*Proved)\b.*?(?=\n\n|\Z)"
#: Where a sentence ends: with its mark, a paragraph, an item of a list, or before the meaning of a name.
ENDS = r"\n\s*\n|\n\s*(?:[-*]|\d+\.) |\n(?=[`\w]+: )|(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_\[`]*[A-Z0-9`])"


def prose(path: Path) -> list[str]:
    """The text of a page; of a module or a script its docstrings and comments, without their signs."""
    if path.suffix == ".md":
        return [path.read_text()]
    found = re.findall(PROSE[path.suffix], path.read_text(), re.DOTALL | re.MULTILINE)
    return [re.sub(r"^ *(?:#[:!]?|--+) ?", "", "".join(one), flags=re.MULTILINE) for one in found]


def long_sentences(text: str) -> list[str]:
    """Code in backticks is one word, and the address of a link is none."""
    text = re.sub(LISTS, "\n\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]+`", "`code`", text))
    sentences = [" ".join(sentence.split()) for sentence in re.split(ENDS, text)]
    return [one for one in sentences if len(re.findall(r"\S*\w\S*", one)) > MOST_WORDS]


def pages() -> list[Path]:
    """What people read of the engine: its modules and scripts and the pages, but for what is generated, published, or a log."""
    files = [path for room in ("engine", "lua", "docs") for path in sorted((ROOT / room).rglob("*.*"))]
    found = [*(path for path in files if path.suffix in (*PROSE, ".md")), *ROOT.glob("*.md")]
    found = [path for path in found if path.name != "CHANGELOG.md" and path.parent.name != "published"]
    return [path for path in found if GENERATED not in path.read_text()[:200]]


def test_no_room_gets_more_long_sentences() -> None:
    """Who shortens some lowers the number, and nobody raises one."""
    rooms = {path: "/".join(path.relative_to(ROOT).parts[:-1][:2]) or path.name for path in pages()}
    counts = Counter(room for path, room in rooms.items() for text in prose(path) for _ in long_sentences(text))
    over = {room: count for room, count in counts.items() if count > SHAPE["sentences"].get(room, 0)}
    assert over == {}, f"sentences of more than {MOST_WORDS} words: make two of one, or a list"


def test_a_long_sentence_is_found_in_prose_alone(tmp_path: Path) -> None:
    words, short = " ".join(["Word"] * 26), " ".join(["Word"] * 25)
    assert long_sentences(f"{words}. {short}. `{words}`\n\n```\n{words}\n```\n| {words} |\n- {short}\n- {short}") == [f"{words}."]
    for name, text in (
        ("a.py", f'"""{words}."""\nB = "{words}"\n# {words}\nC = 1  # {words}\n'),
        ("a.lua", f"-- {words}\nlocal x = 1\n"),
    ):
        (tmp_path / name).write_text(text)
        assert sum(len(long_sentences(one)) for one in prose(tmp_path / name)) == {"a.py": 2, "a.lua": 1}[name]
