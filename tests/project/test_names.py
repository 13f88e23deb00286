"""What must not be in a file that people clone: addresses of registries, paths of one machine, loose dependencies."""

import re
import subprocess
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]

#: Folders that are never part of the project.
PRIVATE = {".git", ".venv", "runs", "build", "dist", "__pycache__", ".pytest_cache", ".ruff_cache"}

FORBIDDEN = {
    "address of a package registry": re.compile(
        r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|proxy\.golang\.org|sum\.golang\.org|crates\.io"
        r"|repo1?\.maven\.|deb\.debian\.org|security\.debian\.org)\b"
    ),
    "path of one machine": re.compile(r"(?<![\w.$}/])/(?:work|root|home)/|/tmp/[w]\b"),
}

PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")


def project_files() -> list[Path]:
    """Everything that git has or would add; where there is no git, everything outside the private folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
        paths = [ROOT / name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for path in ROOT.rglob("*") if PRIVATE.isdisjoint(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file()]


def pins() -> dict[str, str]:
    """Constraints as normalised name -> version. Fails on a line that is neither a comment nor a plain pin."""
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin = PIN.fullmatch(line)
            assert pin, f"constraints.txt: {line!r} is not name==version"
            found[re.sub(r"[-_.]+", "-", pin[1]).lower()] = pin[2]
    return found


def test_no_file_names_a_registry_or_a_machine() -> None:
    files = project_files()
    assert len(files) > 20
    found: list[str] = []
    for path in files:
        text = path.read_bytes().decode(errors="replace")
        for what, pattern in FORBIDDEN.items():
            found += [f"{path.relative_to(ROOT)}: {what}: {hit[0]}" for hit in pattern.finditer(text)]
    assert found == []


def test_the_patterns_find_what_they_are_for() -> None:
    registry, machine = FORBIDDEN.values()
    assert registry.search("see https://" + "pypi" + ".org/simple") and registry.search("registry." + "npmjs" + ".org")
    assert machine.search("cd /" + "root/x") and machine.search('"/' + 'work/main"')
    assert not machine.search("some/work/folder") and not machine.search("$HOME/work/x")


def test_every_dependency_is_pinned_inside_its_range() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = settings["project"], settings["dependency-groups"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), *groups.values()]
    # What is no text is another group, which is walked by itself.
    declared = [name for names in lists for name in names if isinstance(name, str)]
    pinned = pins()
    loose: list[str] = []
    for requirement in map(Requirement, declared):
        version = pinned.get(re.sub(r"[-_.]+", "-", requirement.name).lower())
        if requirement.name != project["name"] and (version is None or not requirement.specifier.contains(version)):
            loose.append(f"{requirement} is pinned to {version}")
    assert loose == []


def test_the_library_has_two_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {Requirement(text).name for text in project["dependencies"]} == {"redis", "croniter"}


def test_the_top_level_holds_the_folders_and_a_few_files() -> None:
    known = {
        *("engine", "lua", "record", "bench", "chaos", "reports", "harness", "clients", "tests", "docs"),
        *("pyproject.toml", "Makefile", "constraints.txt", ".ci", ".github", ".gitignore"),
        *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    }
    assert {path.relative_to(ROOT).parts[0] for path in project_files()} == known
