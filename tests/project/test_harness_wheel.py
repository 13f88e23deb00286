"""The harness's wheel beside the engine's, in an environment without the checkout: the guide's example is checked and drilled.

The environment has the two wheels, and what they depend on from this one: no registry is asked.
"""

import email
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from engine import __version__
from tests.project.test_wheel import BUILD_TIMEOUT_S, built

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT / "harness"
SHOP = ROOT / "docs" / "examples" / "shop"

DRILL_TIMEOUT_S = 900

#: The planted defect: the handler returns, and a thread works.
ACKNOWLEDGED_TOO_SOON = """\
    Thread(target=later, args=(job, buyer, cents)).start()


def later(job: Job, buyer: str, cents: int) -> None:
    time.sleep(1)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Both wheels of this checkout."""
    return [built(project, tmp_path_factory.mktemp("wheels")) for project in (ROOT, HARNESS)]


@pytest.fixture(scope="module")
def commands(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment that has both wheels."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    install = [str(folder / "bin" / "pip"), "install", "-q", "--no-deps", "--no-index", *map(str, wheels)]
    subprocess.run(install, check=True, timeout=BUILD_TIMEOUT_S)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    # Files of paths in a folder that is added like this are not read: the checkout is not on the path.
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return shutil.copytree(SHOP, tmp_path / "shop")


def said(commands: Path, shop: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command says in an environment with nothing but a home and the folders of the system."""
    told = {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"].replace(str(Path(sys.executable).parent) + os.pathsep, "")}
    command = [str(commands / "ironclaim-chaos"), *words]
    return subprocess.run(command, cwd=shop, env=told, capture_output=True, text=True, timeout=DRILL_TIMEOUT_S, check=False)


def test_the_versions_and_dependencies_are_those_of_the_checkout() -> None:
    project = tomllib.loads((HARNESS / "pyproject.toml").read_text())["project"]
    own = {one.name: one for one in map(Requirement, project["dependencies"])}
    assert (project["version"], str(own.pop("ironclaim").specifier)) == (__version__, f"=={__version__}")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    listed = [one for name in ("bench", "chaos", "reports") for one in groups[name] if isinstance(one, str)]
    assert own == {one.name: one for one in map(Requirement, listed)}
    extra = {(one.name, str(one.specifier)) for one in map(Requirement, project["optional-dependencies"]["http"])}
    assert extra == {("ironclaim", f"=={__version__}"), ("ironclaim-client", f"=={__version__}")}


def test_it_holds_the_four_packages_with_their_data(wheels: list[Path]) -> None:
    with zipfile.ZipFile(wheels[1]) as archive:
        names = set(archive.namelist())
        info = f"ironclaim_harness-{__version__}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    assert metadata["Name"] == "ironclaim-harness"
    assert {name.split("/")[0] for name in names} == {"bench", "chaos", "record", "reports", info}
    assert {"bench/slo.toml", "chaos/preload/shim.c", "reports/page/page.css", "reports/capacity/prices.toml"} <= names
    modules = {path.relative_to(ROOT).as_posix() for name in ("record", "reports") for path in (ROOT / name).rglob("*.py")}
    assert modules <= names


def test_the_example_is_checked_in_an_empty_environment(commands: Path, shop: Path) -> None:
    done = said(commands, shop, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one job of queue shop was sent and ran: its handler returned" in done.stdout
    assert done.stdout.endswith("check: ready\n")
    program = "import bench, chaos, engine, record, reports; print(chaos.__file__, engine.__file__)"
    where = subprocess.check_output([str(commands / "python"), "-c", program], cwd=shop, text=True)
    assert str(ROOT) not in where


NOT_IN_THE_WHEEL = [
    (["run", "http"], "missing: ironclaim_client; pip install 'ironclaim_harness-"),
    (["run", "upgrade", "--from", "HEAD"], "run upgrade runs from a checkout of the sources alone"),
    (["run", "target", "rq"], "run target runs from a checkout"),
    (["campaign", "targets"], "campaign targets runs from a checkout"),
]


@pytest.mark.parametrize(("words", "told"), NOT_IN_THE_WHEEL)
def test_what_the_wheel_lacks_is_one_line_before_a_start(commands: Path, tmp_path: Path, words: list[str], told: str) -> None:
    done = said(commands, tmp_path, *words)
    assert done.returncode == 2 and done.stdout == "" and not (tmp_path / "runs").exists()
    assert told in done.stderr and done.stderr.count("\n") == 1


def test_a_load_that_cannot_be_sent_is_told_before_a_drill(commands: Path, shop: Path) -> None:
    load = shop / "load.py"
    load.write_text(load.read_text().replace('"cents": randomness', '"pence": randomness'))
    done = said(commands, shop, "check")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "unplanned exit of producer-1" in done.stderr and "cents" in done.stderr


def test_the_example_is_drilled_and_a_handler_that_acknowledges_before_it_works_is_named(commands: Path, shop: Path) -> None:
    file = shop / "chaos.toml"
    file.write_text(file.read_text().replace('"worker-kill", "worker-freeze", "net-reply-lost"', '"worker-kill"'))
    done = said(commands, shop, "run")
    decided = json.loads((shop / "runs" / "latest" / "verdict.json").read_text())
    late = all(reason.startswith("H3") for reason in decided["reasons"])
    assert done.returncode == 0 or (done.returncode == 2 and late), done.stdout + done.stderr
    assert {one["id"]: one["verdict"] for one in decided["checks"]}["J25"] == "valid"
    assert (shop / "runs" / "latest" / "report.html").exists() and (shop / "runs" / "latest" / "junit.xml").exists()
    jobs = shop / "shop" / "jobs.py"
    planted = jobs.read_text().replace("    time.sleep(0.05)\n", f"    time.sleep(0.05)\n{ACKNOWLEDGED_TOO_SOON}")
    jobs.write_text(planted.replace("import time\n", "import time\nfrom threading import Thread\n"))
    done = said(commands, shop, "run")
    # Lines are as wide as a terminal.
    told = " ".join(done.stdout.split())
    assert done.returncode == 1 and "J25 violated" in told and "was finished, and took no effect" in told
