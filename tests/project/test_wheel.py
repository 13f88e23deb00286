"""The wheel, as its users get it: built, unpacked elsewhere, and used without the source tree."""

import email
import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from engine.models.foreign.foreign import REUSED
from engine.redis.scripts import FOLDERS, all_models, layers_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

BUILD_TIMEOUT_S = 300

#: What the operators' page is made of beside modules.
PAGE_FOLDERS = ("templates", "static")

#: Starts every program below. No site packages are processed (-S), so an editable install cannot put the source tree back on
#: the path; the dependencies are added by hand, after the unpacked wheel.
PRELUDE = """
import sys
sys.path[:0] = [{target!r}]
sys.path += {dependencies!r}
"""

LOAD_SCRIPTS = """
import json
from pathlib import Path
import engine
from engine.models.foreign.foreign import REUSED
from engine.redis import scripts
folder = scripts.scripts_folder()
def link_all(*_):
    raise SystemExit("a script was linked at the start")
scripts._link_all = link_all
loaded = {model: sorted(scripts.load_model(folder, model, REUSED)) for model in scripts.all_models(folder)}
print(json.dumps({"engine": engine.__file__, "lua": str(folder), "scripts": loaded}))
"""

USER_TEST = """
import engine, engine.testing

def test_a_queue(ironclaim_url):
    assert {target!r} in engine.testing.__file__
    queue = engine.Queue("emails", url=ironclaim_url)
    assert queue.enqueue("welcome", {{"to": "someone"}}, id="m1").result == "created"
    assert queue.counts().waiting == 1
    queue.close()
"""

RUN_PYTEST = """
import pytest
raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", "test_user.py"]))
"""


def built(project: Path, folder: Path) -> Path:
    """The wheel of a project, built by the tools of this environment: no registry is asked."""
    folder = folder / project.name
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(project)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("target")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run_program(target: Path, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in another folder, in an interpreter that knows the unpacked wheel and the dependencies only."""
    dependencies = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    prelude = PRELUDE.format(target=str(target), dependencies=dependencies)
    command = [sys.executable, "-I", "-S", "-c", prelude + program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)


def brings(requirement: Requirement, extra: str) -> bool:
    """Whether a requirement is there for this extra."""
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def test_it_holds_the_engine_with_its_scripts_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = "ironclaim-0.1.0.dist-info"
    assert {name.split("/")[0] for name in names} == {"engine", info}
    in_tree = {path.relative_to(ROOT).as_posix() for path in (ROOT / "lua").rglob("*.lua")}
    assert in_tree and {name for name in names if name.endswith(".lua")} == {f"engine/{name}" for name in in_tree}
    assert {"engine/py.typed", f"{info}/licenses/LICENSE"} <= names
    files = [path for folder in PAGE_FOLDERS for path in (ROOT / "engine/http/page" / folder).iterdir()]
    page = {path.relative_to(ROOT).as_posix() for path in files}
    assert {path.rpartition(".")[2] for path in page} == {"html", "css", "js", "svg", "LICENSE"} and page <= names
    assert not [name for name in names if name.endswith((".pyc", ".jsonl"))]


def test_its_metadata_name_two_dependencies_and_the_fixtures(target: Path) -> None:
    info = target / "ironclaim-0.1.0.dist-info"
    metadata = email.message_from_string((info / "METADATA").read_text())
    required = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    assert sorted(requirement.name for requirement in required if requirement.marker is None) == ["croniter", "redis"]
    extras = set(metadata.get_all("Provides-Extra", []))
    assert extras == {"hiredis", "testing", "zones", "otel", "http"}
    brought = {extra for extra in extras for requirement in required if brings(requirement, extra)}
    assert brought == extras, "an extra that brings nothing"
    assert "ironclaim = engine.testing.plugin" in (info / "entry_points.txt").read_text()


def test_it_brings_every_script_linked_in_another_folder(target: Path, tmp_path: Path) -> None:
    answer = run_program(target, LOAD_SCRIPTS, tmp_path)
    assert answer.returncode == 0, answer.stderr
    seen = json.loads(answer.stdout)
    assert Path(seen["engine"]).is_relative_to(target), "the source tree was imported"
    assert Path(seen["lua"]) == target / "engine" / "lua"
    lua = ROOT / "lua"
    shared = {path.stem for path in (lua / "foreign").glob("*.lua")} | set(REUSED)
    wanted: dict[str, list[str]] = {}
    for model in all_models(lua):
        own = {path.stem for folder in layers_of(lua, model)[0] for path in folder.glob("*.lua")}
        wanted[model] = sorted(own if model in FOLDERS else own | shared)
    assert seen["scripts"] == wanted and len(wanted) == 6


def test_its_pytest_fixtures_work_for_a_user(target: Path, tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(USER_TEST.format(target=str(target)))
    answer = run_program(target, RUN_PYTEST, tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "1 passed" in answer.stdout
