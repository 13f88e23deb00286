"""A function of a script has at most 60 lines of code, and `USES` is what `.ci/lua_uses` writes."""

import re
import shutil
from pathlib import Path

from tests.ci_scripts import loaded

ROOT = Path(__file__).resolve().parents[2]
#: What other systems publish for their clients is theirs.
FILES = [path for path in sorted((ROOT / "lua").rglob("*.lua")) if path.parent.name != "published"]
LINES_MAX = 60
_START = re.compile(r"^( *)(?:local )?function ([\w.]+)\(")


def lengths(text: str) -> dict[tuple[int, str], int]:
    """Number of its first line and name of a function -> its lines of code. A local function counts to the one around it as
    well, a member of a table alone."""
    around: list[tuple[str, tuple[int, str]]] = []
    found: dict[tuple[int, str], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        code = re.sub(r" *--.*", "", line)
        if (match := _START.match(line)) and not re.search(r"\bend$", code):
            around.append((match[1], (number, match[2])))
        for _, function in reversed(around if code.strip() else []):
            found[function] = found.get(function, 0) + 1
            if "." in function[1]:
                break
        if around and code == f"{around[-1][0]}end":
            around.pop()
    return found


def test_lengths_are_counted() -> None:
    inner = "  local function b()\n    -- why\n    return 1 -- why\n\n  end\n"
    member = "  function w.c()\n    return 2\n  end\n"
    found = lengths(f"local function a(w)\n{inner}{member}  function w.d() return 3 end\nend\n")
    assert found == {(1, "a"): 6, (2, "b"): 3, (7, "w.c"): 3}


def test_no_function_is_longer_than_60_lines() -> None:
    found = {path.relative_to(ROOT).as_posix(): lengths(path.read_text()) for path in FILES}
    assert [(file, *name) for file, named in found.items() for name, lines in named.items() if lines > LINES_MAX] == []


def test_the_headers_are_those_that_are_written_now(tmp_path: Path) -> None:
    uses, lua = loaded(ROOT / ".ci/lua_uses"), tmp_path / "lua"
    shutil.copytree(ROOT / "lua", lua)
    for path in FILES:
        (lua / path.relative_to(ROOT / "lua")).write_text(uses.USES.sub("", path.read_text()))
    uses.write(lua)
    for path in FILES:
        assert (lua / path.relative_to(ROOT / "lua")).read_text() == path.read_text(), path
