"""docs/protocol.md has each rule that code, scripts and tests cite, and names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()


def sources() -> list[Path]:
    folders = ("engine", "record", "chaos", "bench", "reports", "lua", "tests")
    return [path for folder in folders for suffix in ("py", "lua") for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))]


def test_each_rule_that_is_cited_has_its_section() -> None:
    headings = re.findall(r"^### Rule (\d+): (.+)$", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in headings] == list(range(1, 40))
    assert len({name for _, name in headings}) == 39
    cited = {int(number) for path in sources() for number in re.findall(r"(?:\b[Rr]ules? |test_rule_)(\d+)", path.read_text())}
    assert cited <= set(range(1, 40)) and len(cited) > 25


def test_the_files_that_it_names_exist() -> None:
    named = set(re.findall(r"`((?:tests|engine|record|lua|chaos|reports)/[\w/.]+\.(?:py|lua))`", PAGE))
    assert named and not {file for file in named if not (ROOT / file).is_file()}


def test_the_functions_that_it_names_are_defined_in_their_files() -> None:
    named = re.findall(r"`((?:lua|engine)/[\w/.]+)`\s+\(((?:`\w+`(?:,\s+)?)+)\)", PAGE)
    wanted = [(file, name) for file, names in named for name in re.findall(r"\w+", names)]
    defined = r"(?:def|class|function) {0}\b|^{0}\b"
    texts = {file: (ROOT / file).read_text() for file, _ in wanted}
    assert len(wanted) > 30
    assert [one for one in wanted if not re.search(defined.format(one[1]), texts[one[0]], re.MULTILINE)] == []


def test_the_tests_that_pages_name_exist() -> None:
    known = {
        name for path in sources() for name in (path.stem, *re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.M))
    }
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = {name: page.name for page in pages for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named) > 100 and {name: page for name, page in named.items() if name not in known} == {}


def test_lines_of_lua_are_at_most_110_wide_but_for_what_an_anchor_stands_for() -> None:
    """Words and code are wrapped; a planted defect replaces whole lines, so those stay whole."""
    for path in (path for path in sources() if path.suffix == ".lua" and path.parent.name != "published"):
        lines = path.read_text().split("\n")
        wide = [number for number, line in enumerate(lines) if len(line) > 110]
        assert all("-- anchor: " in "".join(lines[max(0, at - 3) : at]) for at in wide if lines[at][:3] != "-- "), path
        assert not [lines[number] for number in wide if lines[number][:3] == "-- "], path
