"""Files, modules and functions that pages, comments and messages cite are in the tree: a reader who follows a citation finds
something."""

import ast
import builtins
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CITED = re.compile(
    r"(?<![\w/.<>{}*$-])((?:engine|record|lua|bench|chaos|reports|tests|docs|clients|reference|seeds|shared)/[\w./-]*\.(?:md|py|lua|js|ts|csv|toml))\b"
)
#: Their paths are made up: what the selection of tests, and the numbers of a profile, are told in tests.
MADE_UP = ("tests/mutation/test_selection.py", "tests/bench/test_micro_numbers.py")
#: Links of the documentation begin at docs/.
PAGES = ("docs/index.md", ".ci/mkdocs.yml")


def test_every_file_that_is_cited_is_there() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {name for name in listed.split("\0") if name}
    assert len(files) > 1_000
    gone: list[str] = []
    for name in sorted(files.difference(MADE_UP)):
        path = ROOT / name
        if path.suffix not in (".md", ".py", ".lua", ".yml", ".toml", ".js", ".ts", "") or not path.is_file():
            continue
        start = "docs/" if name in PAGES else ""
        for number, line in enumerate(path.read_text().split("\n"), 1):
            gone += [f"{name}:{number}: {cited}" for cited in CITED.findall(line) if not {cited, start + cited} & files]
    assert gone == []


# -- Docstrings of packages name modules by one word.


def defined(folder: Path) -> set[str]:
    """The modules and folders that are in a folder, and what these modules define outside of classes."""
    names = {path.stem for path in folder.iterdir()}
    for path in folder.glob("*.py"):
        names |= {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return names


def named_in_vain(package: Path) -> list[str]:
    """Lower-case words in backticks of a package's docstring that stand for nothing there, beside it, or in Python."""
    words = re.findall(r"`([a-z_]+)`", ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "")
    known = {*defined(package), *(path.stem for path in package.parent.iterdir()), *vars(builtins), "ironclaim"}
    return [word for word in words if word not in known]


def test_the_docstring_of_a_package_names_what_is_in_it(tmp_path: Path) -> None:
    packages = [path.parent for path in (ROOT / "engine").rglob("__init__.py")]
    assert len(packages) > 15
    assert {str(package.relative_to(ROOT)): gone for package in packages if (gone := named_in_vain(package))} == {}
    (tmp_path / "here.py").write_text("def own() -> None: ...\n")
    (tmp_path / "__init__.py").write_text('"""`here` and `own`, `list`; `gone`."""\n')
    assert named_in_vain(tmp_path) == ["gone"]


# -- The table of docs/architecture.md that says where what is decided.

DECIDED = re.compile(r"^\| [^|]+ \| `([\w/.]+\.(?:py|lua))`(?:: ([^|]+))? \|$", re.MULTILINE)


def test_what_is_decided_where_is_defined_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text().partition("## Where it is decided")[2].partition("\n## ")[0]
    rows = DECIDED.findall(text)
    assert len(rows) >= 20 and len(rows) == text.count("\n| ") - 1, "a row of another form"
    for name, functions in rows:
        source = (ROOT / name).read_text()
        for function in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"(?:def|class|function) {function}\b|^{function}\b", source, re.MULTILINE), (name, function)
