"""The examples of the clients' READMEs run as they stand, against the real application, with a worker."""

import re
import sys
from pathlib import Path

import pytest

from chaos.interop import node
from tests.clients.conftest import ROOT, TOKEN, add, run, working


@pytest.mark.parametrize("language", ["python", pytest.param("typescript", marks=pytest.mark.slow)])
def test_the_example_runs_as_it_stands(
    language: str, application_url: str, ironclaim_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (example,) = re.findall(r"```(?:python|js)\n(.*?)```", (ROOT / "clients" / language / "README.md").read_text(), re.DOTALL)
    assert TOKEN in example
    example = example.replace("http://127.0.0.1:8080", application_url)
    with working(ironclaim_url, add=add, divide=lambda job: job.payload[0] / job.payload[1]):
        if language == "python":
            program = f"import sys; sys.path.insert(0, {str(ROOT / 'clients' / 'python')!r})\n{example}"
            printed = run([sys.executable, "-c", program], tmp_path)
        else:
            folder: Path = request.getfixturevalue("installed")
            file = tmp_path / "example.js"
            (tmp_path / "package.json").write_text('{"type": "module"}')
            (tmp_path / "node_modules").symlink_to(folder / "node_modules")
            file.write_text(example)
            printed = run([node.program("node"), file], tmp_path)
    assert printed.splitlines() == re.findall(r"(?:#|//) prints: (.*)", example)
