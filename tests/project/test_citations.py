"""Files that pages, comments and messages cite are in the tree: a reader who follows a citation finds something."""

from __future__ import annotations

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
