"""The entry point of the command line: its commands, and how their failures are shown."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, cast

from engine.command.output import finish_output, prepare_output, print_error
from engine.command_line import Parser
from engine.errors import EngineError, describe, logger
from engine.observer import VARIABLE
from engine.version import __version__

#: Exit code for bad arguments, and for a server that cannot be reached.
FAILED = 2
#: Commands that are services of their own. The others ask, or do one thing, perhaps beside a service whose
#: environment they share: who observes that one is not to be told of them.
_SERVICES = ("worker", "outbox", "serve")
log = logger("ironclaim.command")
_VERSION = f"ironclaim {__version__}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. 0: it did what it was asked; 1: there was nothing to do it
    to; 2: it could not, and one line on stderr says why."""
    given = sys.argv[1:] if arguments is None else [*arguments]
    if given == ["--version"]:
        # Asked for by scripts, and the commands take a third of a second to import.
        print(_VERSION)
        return 0
    prepare_output()
    code = _carried_out(given)
    try:
        finish_output()
    except BrokenPipeError:
        return 0
    except OSError as error:
        print_error(f"the output cannot be written: {error}")
        return FAILED
    return code


def _carried_out(given: list[str]) -> int:
    try:
        from engine.command.arguments import misspelt

        parser = _parser()
        for complaint in misspelt(VARIABLE):
            print_error(complaint)
        options = parser.parse_args(given)
        #: For a command that runs itself in another process.
        options.arguments = given
        if options.command not in _SERVICES:
            os.environ.pop(VARIABLE, None)
        return options.run(options)
    except BrokenPipeError:
        # The reader of the pipe has closed it.
        return 0
    except EngineError as error:
        print_error(str(error))
        return FAILED
    except OSError as error:
        named = error.filename is not None and error.strerror
        print_error(f"{error.filename}: {error.strerror}" if named else str(error))
        return FAILED
    except KeyboardInterrupt:
        return 130
    except SystemExit:
        # argparse has said what is wrong, or printed its help.
        raise
    except BaseException as error:
        log.debug("the command has failed", exc_info=error)
        print_error(describe(error))
        return FAILED


class _Parser(Parser):
    """Says what is wrong in one line, and names no password of a url that it was given."""

    def error(self, message: str) -> NoReturn:
        """Print the message and where the options are described, and end with exit code 2."""
        print_error(f"{self.hinted(message)}; see {self.prog} --help")
        sys.exit(FAILED)


def _parser() -> argparse.ArgumentParser:
    from engine.command import enqueue, health, jobs, maintenance, queues, serve, worker

    parser = cast(
        "argparse.ArgumentParser", _Parser(prog="ironclaim", description="Workers, and a look at queues.")
    )
    parser.add_argument("--version", action="version", version=_VERSION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    worker.add_parser(commands)
    maintenance.add_outbox(commands)
    queues.add_pausing(commands)
    queues.add_parsers(commands)
    enqueue.add_parser(commands)
    jobs.add_parsers(commands)
    queues.add_cron(commands)
    queues.add_limits(commands)
    queues.add_history(commands)
    maintenance.add_backup(commands)
    queues.add_top(commands)
    health.add_parser(commands)
    serve.add_parser(commands)
    maintenance.add_reshard(commands)
    maintenance.add_lua(commands)
    return parser
