"""Node and npm packages: found, or installed once into the user's cache folder. Standard library only.

    python -m chaos.interop.node    prints the folders of the packages, which it installs first where there are none

The versions are those of package-lock.json beside the adapter, and beside the TypeScript client, which they build. npm
takes them from the registry that it is set up for.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chaos.errors import HarnessError
from chaos.tool_cache import cache_folder, locked

#: The adapter, its package.json and package-lock.json.
FOLDER = Path(__file__).parent / "node"
#: The TypeScript client, with the same two files for what compiles it.
CLIENT = Path(__file__).resolve().parents[2] / "clients" / "typescript"
ADAPTER = FOLDER / "adapter.js"
LOCK = "package-lock.json"

#: Ten and thirty small packages; seconds where the registry answers.
INSTALL_TIMEOUT_S = 300

MISSING = "what runs beside Node needs {name}, which is missing; on Debian: sudo apt-get install nodejs npm"

Say = Callable[[str], None]


class NodeMissing(HarnessError):
    """Node or its packages cannot be had. The message is one line that says what was looked for and what installs it."""


def program(name: str) -> Path:
    """`node` or `npm` on PATH. Raises NodeMissing."""
    found = shutil.which(name)
    if found is None:
        raise NodeMissing(MISSING.format(name=name))
    return Path(found)


def modules(say: Say = lambda line: None, folder: Path = FOLDER) -> Path:
    """The folder of the packages that the lock file in `folder` names, installed now unless it is there. Raises NodeMissing."""
    program("node")
    target = cached(folder)
    if target.is_dir():
        return target
    npm = program("npm")
    with locked(target.parent.parent, ".node-lock", NodeMissing):
        if not target.is_dir():
            say(f"installing the npm packages of {folder.name}/{LOCK}, once")
            install(npm, folder, target.parent)
    return target


def install(npm: Path, source: Path, target: Path) -> None:
    """Install the packages of the lock file in `source` as `target/node_modules`, in one step: no reader ever sees half of it."""
    with tempfile.TemporaryDirectory(prefix="install-", dir=target.parent) as folder:
        for name in ("package.json", LOCK):
            shutil.copy(source / name, folder)
        command = [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=INSTALL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise NodeMissing(f"`npm ci` did not end within {INSTALL_TIMEOUT_S} s") from None
        except OSError as error:
            raise NodeMissing(f"{npm} cannot be run: {error.strerror or error}") from error
        if done.returncode != 0:
            raise NodeMissing(f"`npm ci` failed with code {done.returncode}: {first_error(done.stderr)}")
        shutil.rmtree(target, ignore_errors=True)
        made = Path(folder) / "made"
        made.mkdir()
        (Path(folder) / "node_modules").replace(made / "node_modules")
        made.replace(target)


def first_error(output: str) -> str:
    """The line of npm's output that says most."""
    lines = [line.strip() for line in output.splitlines() if line.startswith("npm error")]
    return lines[0] if lines else "it said nothing"


def cached(folder: Path = FOLDER) -> Path:
    """Where the packages are kept: one folder per lock file, below XDG_CACHE_HOME or ~/.cache."""
    digest = hashlib.sha256((folder / LOCK).read_bytes()).hexdigest()[:16]
    return cache_folder() / f"node-{digest}" / "node_modules"


def adapter_command(mode: str, settings: Mapping[str, Any]) -> list[str]:
    """The command line of the adapter; see adapter.js for its modes. Raises NodeMissing."""
    return [str(program("node")), str(ADAPTER), mode, json.dumps(dict(settings))]


def adapter_environment() -> dict[str, str]:
    """What the adapter needs in its environment, to be added to ours. Raises NodeMissing."""
    return {"NODE_PATH": str(modules())}


def version() -> str:
    """The version of Bull that the lock file names."""
    packages = json.loads((FOLDER / LOCK).read_text())["packages"]
    return str(packages["node_modules/bull"]["version"])


def main() -> int:
    """Print where the packages are; 2 with one line on stderr when they cannot be had."""
    try:
        for folder in (FOLDER, CLIENT):
            print(modules(lambda line: print(f"node: {line}", file=sys.stderr, flush=True), folder), flush=True)
    except NodeMissing as error:
        print(f"node: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("node: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
