"""The environments of the libraries: each its own, built when it is first needed, in `build/peers/`."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.micro.place import ROOT
from bench.peers.libraries import OURS, Library

ADAPTERS = Path(__file__).with_name("adapters")
FOLDER = ROOT / "build" / "peers"
_LOG = FOLDER / "install.log"
_TIMEOUT_S = 600
#: What the Node programs share; it lies beside each.
_SHARED_JS = ("recording.js", "drilled.js")


class NotAvailable(Exception):
    """This machine cannot run a library; the message says why, in one line."""


def command_of(library: Library) -> list[str]:
    """The program and first arguments that run the library's adapter; builds its environment if it is not there.

    Raises NotAvailable.
    """
    if library.runtime == "checkout":
        return [sys.executable, "-P", str(ADAPTERS / library.adapter)]
    folder = FOLDER / library.adapter.split(".")[0]
    stamp, wanted = folder / "packages.json", json.dumps([library.packages, _source(library)])
    if not stamp.is_file() or stamp.read_text() != wanted:
        started_s = time.monotonic()
        print(f"peers: installing {library.name} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _BUILD[library.runtime](library, folder)
        stamp.write_text(wanted)
        print(f"peers:   done in {time.monotonic() - started_s:.0f} s", flush=True)
    return {
        "python": [str(folder / "bin" / "python"), "-P", str(ADAPTERS / library.adapter)],
        "node": ["node", str(folder / library.adapter)],
        "go": [str(folder / "adapter")],
    }[library.runtime]


def _source(library: Library) -> str:
    """What has to be built again when it changes: our wheel; Node looks for packages beside the program, Go compiles it."""
    if library.name == OURS:
        own = [ROOT / "pyproject.toml", *(ROOT / "engine").rglob("*.py"), *(ROOT / "lua").rglob("*.lua")]
        return hashlib.sha256(b"".join(b"%s %s" % (bytes(file), file.read_bytes()) for file in sorted(own))).hexdigest()
    if library.runtime == "python":
        return ""
    place = ADAPTERS / library.adapter
    files = sorted(place.iterdir()) if place.is_dir() else [place, *(ADAPTERS / name for name in _SHARED_JS)]
    return "".join(file.read_text() for file in files)


def _python(library: Library, folder: Path) -> None:
    program = sys.executable if sys.version_info[:2] >= library.python_min else _newer_python(library.python_min)
    _run([program, "-m", "venv", str(folder)], folder)
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *library.packages], folder)


def _newer_python(least: tuple[int, int]) -> str:
    """A newer Python on PATH that runs; raises NotAvailable."""
    for minor in range(least[1], least[1] + 4):
        program = shutil.which(f"python{least[0]}.{minor}")
        if program and subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0:
            return program
    raise NotAvailable(f"needs Python {least[0]}.{least[1]} or newer, as python{least[0]}.{least[1]} on PATH")


def _node(library: Library, folder: Path) -> None:
    if shutil.which("npm") is None:
        raise NotAvailable("needs Node and npm")
    (folder / "package.json").write_text('{"private": true}\n')
    _run(["npm", "install", "--no-audit", "--no-fund", "--save-exact", *library.packages], folder)
    for name in (library.adapter, *_SHARED_JS):
        shutil.copy(ADAPTERS / name, folder / name)


def _go(library: Library, folder: Path) -> None:
    if shutil.which("go") is None:
        raise NotAvailable("needs Go")
    shutil.copytree(ADAPTERS / library.adapter, folder, dirs_exist_ok=True)
    _run(["go", "build", "-o", "adapter", "."], folder)


_BUILD = {"python": _python, "node": _node, "go": _go}


def _run(command: list[str], folder: Path) -> None:
    with _LOG.open("ab") as log:
        try:
            subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=_TIMEOUT_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise NotAvailable(f"could not be installed ({type(error).__name__}); see {_LOG.relative_to(ROOT)}") from error
