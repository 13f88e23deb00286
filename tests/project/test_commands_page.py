"""The pages on verification have what --help and the printed verdict tell, and commands that pages name exist."""

import os
import re
from pathlib import Path

from bench.__main__ import PROGRAMS
from chaos import cli, verbs
from reports.command import OTHERS
from tests.ci_scripts import loaded
from tests.given import Output, Patch

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((ROOT / "docs").rglob("*.md"))
GENERATOR = loaded(ROOT / ".ci/generate_commands")
FORMER = loaded(ROOT / ".ci/former_targets")

#: Who tells of what was typed before.
ABOUT_BEFORE = {"python -m chaos bench", "make soak"}


def test_the_pages_have_what_is_told_now(capsys: Output) -> None:
    columns = os.environ.get("COLUMNS")
    assert GENERATOR.main(["--check"]) == 0, capsys.readouterr().err + "make generate writes the pages anew"
    assert os.environ.get("COLUMNS") == columns


def test_what_means_the_same_everywhere_is_told_once() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    # A word of `runs` is told like --runs.
    assert [page.count(option.told) for option in verbs.KEPT[1:]] == [1] * 2
    bench = next(verb for verb in verbs.VERBS if verb.name == "run bench")
    assert set(verbs.OF_MANY) <= set(bench.options) and "--keep-days N" in cli.parser_of(bench).format_help()
    assert page.count("  --seed, --all, --runs, --keep, --keep-days: as in every run\n") > 3


def test_a_page_that_tells_something_else_or_lacks_a_command_is_found(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    pages = tuple(tmp_path / path.name for path in GENERATOR.PAGES)
    for page, path in zip(pages, GENERATOR.PAGES, strict=True):
        page.write_text(path.read_text().replace("draws load and faults (default 1;", "draws load and faults (default 2;"))
    monkeypatch.setattr(GENERATOR, "PAGES", pages)
    assert GENERATOR.main(["--check"]) == 1 and (GENERATOR.main([]), GENERATOR.main(["--check"])) == (0, 0)
    pages[0].write_text(pages[0].read_text().replace("<!-- help: python -m chaos run soak -->\n", ""))
    assert GENERATOR.main(["--check"]) == 1
    assert "there is no block <!-- help: python -m chaos run soak -->" in capsys.readouterr().err


def cited(pattern: str) -> set[tuple[str, str]]:
    """Page and command of each that the pages name."""
    return {(page.name, found) for page in PAGES for found in re.findall(pattern, " ".join(page.read_text().split()))}


def test_commands_that_pages_name_exist() -> None:
    names = {verb.name for verb in verbs.VERBS}
    alone = {name for name in names if " " not in name} | {"--help"}
    wanted = cited(r"(?:python -m chaos|ironclaim-chaos)\s(--help|[a-z]+(?: [a-z]+(?![\w./-]))?)")
    assert len(wanted) > 40
    # A word behind a verb of one word is an argument.
    unknown = {(page, words) for page, words in wanted if words not in names and words.split()[0] not in alone}
    assert {(page, words) for page, words in unknown if f"python -m chaos {words}" not in ABOUT_BEFORE} == set()
    assert {words for _, words in cited(r"python -m reports ([a-z]+)")} <= {*OTHERS, "judge", "corrupt", "cluster"}
    assert {words for _, words in cited(r"python -m bench ([a-z]+)")} <= {*PROGRAMS}


def test_pages_name_no_target_of_before() -> None:
    former = {f"make {name}" for name in (*FORMER.TARGETS, *FORMER.PROGRAMS)} - ABOUT_BEFORE
    told = {(page.name, words) for page in PAGES for words in re.findall(r"(?m)(?:`|^)(make [a-z-]+)", page.read_text())}
    assert len(told) > 10 and {(page, words) for page, words in told if words in former} == set()
