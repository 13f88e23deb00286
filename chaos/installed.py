"""How this harness is installed: as a checkout, in which `make setup` brings everything, or as wheels, for which pip does.

Standard library only, so that it also runs before there is an environment.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from chaos.errors import HarnessError
from engine.version import __version__

#: The folder that holds the packages engine, record, bench, chaos and reports.
ROOT = Path(__file__).resolve().parent.parent

CHECKOUT = (ROOT / ".ci" / "setup").is_file()

#: Where children find packages beside those that are installed: those of that folder, and the client over HTTP.
PACKAGES = (str(ROOT), str(ROOT / "clients" / "python"))

#: What a producer over HTTP and the apps that it calls need beside all else.
OVER_HTTP = ("ironclaim_client", "httpx", "starlette", "uvicorn", "jinja2", "jwt")

_SETUP = "`make setup` installs what drills need"


def how(extra: str = "") -> str:
    """What installs the Python packages that drills need, as the end of a message. `extra`: those of this extra of the wheel."""
    if CHECKOUT:
        return _SETUP
    harness = f"ironclaim_harness-{__version__}-py3-none-any.whl"
    if not extra:
        return f"pip install {harness} installs what drills need"
    return f"pip install '{harness}[{extra}]' ironclaim_client-{__version__}-py3-none-any.whl, a wheel of clients/python"


def lacking(what: str, modules: Iterable[str], extra: str = "") -> Iterator[str]:
    """One line where some of the modules are missing for the processes of a run."""
    places = [*PACKAGES, *sys.path]
    if missing := [name for name in modules if PathFinder.find_spec(name, places) is None]:
        yield f"{what} needs Python packages that are missing: {', '.join(missing)}; {how(extra)}"


def of_checkout(what: str) -> None:
    """Raise HarnessError for what a wheel has not."""
    if not CHECKOUT:
        raise HarnessError(f"{what} runs from a checkout of the sources alone, as python -m chaos; this is an installed wheel")
