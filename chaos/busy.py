"""Run a command while so many processes use up a core each beside it.

    python -m chaos.busy 2 -- make test

The busy processes end with the command, and all of them when this process is killed. Its exit code is that of the command.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from engine.testing import start_guarded
from record.options import Option, Wrong

USAGE = "usage: python -m chaos.busy COUNT -- COMMAND [ARGUMENT ...]"
USAGE_EXIT_CODE = 2

#: What a shell answers for a command that it cannot run.
NOT_FOUND_EXIT_CODE = 127

#: More would only make the machine useless.
COUNT = Option("BUSY", "how many processes are busy", int, low=0, high=64)

#: A signal that arrives just before we wait is heard after that wait.
SIGNAL_LOOK_S = 0.5

SPIN = (sys.executable, "-c", "while True: pass")


def main(arguments: Sequence[str]) -> int:
    """The exit code of the command; 2 for wrong arguments, 127 for a command that cannot be run, 128 and the number of the signal
    that ended it."""
    count, command = "".join(arguments[:1]), arguments[2:]
    if list(arguments[1:2]) != ["--"] or not command:
        print(USAGE, file=sys.stderr)
        return USAGE_EXIT_CODE
    try:
        busy = [start_guarded(SPIN) for _ in range(COUNT.read(count))]
    except Wrong as error:
        print(f"busy: {error}", file=sys.stderr)
        return USAGE_EXIT_CODE
    try:
        return run(command)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run(command: Sequence[str]) -> int:
    """Run the command in our own session, so that a Ctrl-C at the terminal reaches it too; its exit code."""
    try:
        process = start_guarded(command, start_new_session=False)
    except OSError as error:
        print(f"busy: {command[0]}: {error.strerror or error}", file=sys.stderr)
        return NOT_FOUND_EXIT_CODE

    def pass_on(number: int, frame: FrameType | None) -> None:
        # A Ctrl-C has reached the command already; we only wait for what it makes of it.
        if number != signal.SIGINT:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    while (code := _code(process)) is None:
        pass
    return 128 - code if code < 0 else code


def _code(process: subprocess.Popen[bytes]) -> int | None:
    """How it ended, if it does within a look."""
    try:
        return process.wait(SIGNAL_LOOK_S)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
