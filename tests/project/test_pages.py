"""Pages of the documentation: links lead to each of them, the page of concepts keeps to the glossary and its picture, and the
tables of commands and endpoints have all of them."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from engine.command.main import _parser  # pyright: ignore[reportPrivateUsage]
from engine.http.routes import _OF_JOBS  # pyright: ignore[reportPrivateUsage]
from tests.ci_scripts import loaded
from tests.project.test_words import glossary

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONCEPTS = DOCS / "concepts.md"
LINK = re.compile(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)")


def linked_from(page: Path, text: str) -> set[Path]:
    """The pages that a page links, but for itself."""
    return {(page.parent / target).resolve() for target in LINK.findall(text)} - {page}


def test_every_page_is_linked_by_another_one() -> None:
    pages = sorted(DOCS.rglob("*.md"))
    assert len(pages) > 40
    linked = {found for page in (*pages, ROOT / "README.md") for found in linked_from(page, page.read_text())}
    assert [str(page.relative_to(DOCS)) for page in pages if page not in linked] == ["index.md"], "where readers begin"


def test_a_link_to_the_page_itself_or_elsewhere_does_not_count() -> None:
    text = "[a](concepts.md#top) [b](guides/capacity.md) [c](https://example.org/x.md) guides/limits.md"
    assert linked_from(CONCEPTS, text) == {DOCS / "guides/capacity.md"}


def test_readers_find_capacity_concepts_and_the_cheat_sheet_where_they_begin() -> None:
    for start in (ROOT / "README.md", DOCS / "index.md"):
        wanted = {DOCS / name for name in ("concepts.md", "cheat-sheet.md", "migrating.md", "guides/capacity.md")}
        assert wanted <= linked_from(start, start.read_text())
    assert DOCS / "guides/capacity.md" in linked_from(DOCS / "operating.md", (DOCS / "operating.md").read_text())


def test_concepts_are_twenty_lines_in_the_words_of_the_glossary() -> None:
    text = CONCEPTS.read_text()
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ?([^|]*) ?\|", glossary(), re.MULTILINE)[1:]
    known, refused = {word for word, _ in rows}, {word for _, words in rows for word in words.strip().split(", ") if word}
    assert len(text.splitlines()) <= 24
    concepts = re.findall(r"\*\*([^*]+)\*\*", text)
    assert len(concepts) > 15 and [word for word in concepts if word not in known] == []
    assert {"done", "master", "take", "turn"} <= refused
    assert [word for word in sorted(refused) if re.search(rf"\b{re.escape(word)}s?\b", text, re.IGNORECASE)] == []


def test_the_picture_of_the_concepts_is_the_one_that_its_program_draws() -> None:
    program = loaded(ROOT / ".ci/concepts_picture.py")
    assert program.PICTURE.read_text() == program.drawn()


# -- Tables of commands and endpoints that are written by hand: a new one that nobody wrote down is found.


def commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The words of the commands and of what each of them can do."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            for name, below in cast("dict[str, argparse.ArgumentParser]", action.choices).items():
                yield name
                yield from commands(below)


def in_the_table(page: str, word: str) -> bool:
    """Whether a row of the page has this word in its first column."""
    rows = re.findall(r"^\| (`.*?) \| ", (DOCS / page).read_text(), re.MULTILINE)
    return any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", row) for row in rows)


def test_each_command_has_a_row_on_the_page_of_operating() -> None:
    known = list(commands(_parser()))
    assert len(known) > 30 and [word for word in known if not in_the_table("operating.md", word)] == []
    assert not in_the_table("operating.md", "time") and not in_the_table("operating.md", "now")


def requests_told() -> Iterator[tuple[str, str]]:
    """Method and path of each request in the table of the guide. What begins with a slash is below the last whole path, a word
    stands in place of the last one, and both have the methods before them."""
    methods, whole, path = [""], "", ""
    for row in re.findall(r"^\| (`[A-Z, ]+ /api.*?) \| ", (DOCS / "guides/http.md").read_text(), re.MULTILINE):
        for said in re.findall(r"`([^`]+)`", re.sub(r"`{.*?`", "", row)):
            *given, word = said.partition("?")[0].replace(",", "").split()
            methods, whole = given or methods, word if word.startswith("/api") else whole
            path = word if word == whole else whole + word if word[0] == "/" else f"{path.rpartition('/')[0]}/{word}"
            yield from ((method, path) for method in methods)


def test_the_guide_has_each_request_of_the_job_api_and_no_other() -> None:
    there = {(method, re.sub(r"\{\w+\}", "_", path)) for method, path, _ in _OF_JOBS if not path.startswith("/api/v1")}
    assert {(method, re.sub(r"\b(Q|ID|NAME|KEY)\b", "_", path)) for method, path in requests_told()} == there
