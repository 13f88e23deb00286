"""How often each job of a service took effect, as its own function says, in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from chaos.errors import HarnessError
from chaos.processes import last_line
from chaos.service.file import ServiceFile


def counted(
    service: ServiceFile, environment: Mapping[str, str], log: Path, hide: Callable[[str], str], timeout_s: float
) -> dict[str, int]:
    """The effects of each job by its id. `log`: what the function prints. Raises HarnessError, in one line, where the function
    raises, takes too long, or returns something else."""
    command = [sys.executable, "-P", "-m", "chaos.service.names", "effects", str(service.folder), service.effects]
    try:
        with log.open("ab") as output:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=service.folder,
                env=environment,
                timeout=timeout_s,
                check=True,
            )
        found: dict[str, int] = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"effects {service.effects}: it did not return within {timeout_s:.0f} s") from error
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # The text of the error has the words of the command alone.
        raise HarnessError(f"effects {service.effects}: {last_line(log, hide) or hide(str(error))}") from None
    return found
