"""Type checkers of a service find its mistakes with typed jobs, in arguments as in results, and nothing where there are none."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "tests/project/typed" / name for name in ("clean.py", "mistakes.py")]
MISTAKE = re.compile(r"# mistake (\d+): ")
#: A file and the number of a line in it.
Flagged = set[tuple[str, int]]
#: What a checker flags in these files, and what it has printed; it may write into the folder.
Check = Callable[[Path, list[Path]], tuple[Flagged, str]]


def marked() -> Flagged:
    lines = FILES[1].read_text().splitlines()
    found = {number: int(mistake[1]) for number, line in enumerate(lines, 1) if (mistake := MISTAKE.search(line))}
    assert sorted(found.values()) == list(range(1, 27))
    return {("mistakes.py", number) for number in found}


def by_mypy(scratch: Path, files: list[Path]) -> tuple[Flagged, str]:
    # The engine is silent, as a library is that a service has installed.
    options = ["--strict", "--follow-imports=silent", "--no-error-summary", "--hide-error-context", "--config-file="]
    command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={scratch}", *map(str, files)]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(ROOT)})
    lines = re.findall(r"^(?:.*/)?(\w+\.py):(\d+): error:", done.stdout, re.MULTILINE)
    return {(file, int(line)) for file, line in lines}, done.stdout + done.stderr


def by_pyright(scratch: Path, files: list[Path]) -> tuple[Flagged, str]:
    for path in files:
        shutil.copy(path, scratch)
    (scratch / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)], "typeCheckingMode": "strict"}))
    command = [sys.executable, "-m", "pyright", "--outputjson", f"--pythonpath={sys.executable}", f"--project={scratch}"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
    assert json.loads(done.stdout)["summary"]["filesAnalyzed"] == len(files), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in found if one["severity"] == "error"}
    return lines, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_each_mistake_is_flagged_and_nothing_else(check: Check, tmp_path: Path) -> None:
    flagged, output = check(tmp_path, FILES)
    assert flagged == marked(), output
