"""The command line: arguments, the table on stdout, one line on stderr for any error, and the exit code."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from reports.cluster import cluster
from reports.compare import compare
from reports.corrupt.command import corrupt
from reports.corrupt.command import render as seen
from reports.errors import JudgeError, one_line
from reports.interrupts import INTERRUPTS
from reports.judge import judge, withdraw
from reports.session import spark_session
from reports.spark_settings import CONF_VARIABLE, LOCAL, MASTER_VARIABLE, chosen_conf, chosen_master
from reports.table import render
from reports.verdict import EXIT_CODES

UNKNOWN = EXIT_CODES["unknown"]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(prog="python -m reports", description="Judge recorded runs.")
    commands = root.add_subparsers(dest="command", required=True)
    command = commands.add_parser("judge", help="decide valid, violated or unknown, and write verdict.json")
    command.add_argument("run", type=Path, help="folder of the run, such as runs/latest")
    spark_options(command)
    command = commands.add_parser("corrupt", help="edit a valid run in every known way, and see whether the judge sees each")
    command.add_argument("run", type=Path, help="folder of the run, such as runs/latest")
    command.add_argument("--seed", type=int, default=1, help="which jobs are edited (default: %(default)s)")
    spark_options(command)
    command = commands.add_parser("cluster", help="a standalone Spark cluster on this machine, until a signal ends it")
    command.add_argument("--workers", type=int, default=2, help="how many workers (default: %(default)s)")
    command.add_argument("--cores", type=int, default=1, help="cores that each offers (default: %(default)s)")
    command.add_argument("--memory", default="2g", help="memory that each offers (default: %(default)s)")
    command = commands.add_parser("compare", help="the table of a comparison of models, printed and as a page")
    command.add_argument("run", type=Path, help="folder of the comparison, such as runs/latest")
    return root


def spark_options(command: argparse.ArgumentParser) -> None:
    """The options of a command that starts Spark."""
    command.add_argument("--master", help=f"Spark master (default: ${MASTER_VARIABLE}, else {LOCAL})")
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"a Spark setting, such as spark.executor.memory=4g; may be repeated (default: ${CONF_VARIABLE})",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    options = parser().parse_args(arguments)
    if options.command == "compare":
        return compared(options.run)
    if options.command == "cluster":
        return held(options)
    if options.command == "corrupt":
        return corrupted(options)
    try:
        decided = judge(options.run, master=chosen_master(options.master), conf=chosen_conf(options.conf))
        INTERRUPTS.check()
        tell(render(decided))
    except JudgeError as error:
        return complain(str(error))
    except KeyboardInterrupt:
        with suppress(JudgeError):
            withdraw(options.run)
        return complain("interrupted")
    except OSError as error:
        return complain(f"the table cannot be printed: {error.strerror or error}")
    except Exception as error:
        return complain(f"the judge failed: {one_line(error)}")
    return EXIT_CODES[decided["verdict"]]


def compared(folder: Path) -> int:
    """Print the table of a comparison, write its page, and return the exit code."""
    try:
        tell(compare(folder))
    except JudgeError as error:
        print(f"compare: {error}", file=sys.stderr)
        return UNKNOWN
    except OSError as error:
        print(f"compare: the table cannot be printed: {error.strerror or error}", file=sys.stderr)
        return UNKNOWN
    return 0


def held(options: argparse.Namespace) -> int:
    """Keep a cluster until a signal ends it. 0 after a signal, 2 when it did not come up."""
    try:
        with cluster(options.workers, cores=options.cores, memory=options.memory) as address:
            tell(address)
            while not INTERRUPTS.asked:
                signal.pause()
    except KeyboardInterrupt:
        return 0
    except (JudgeError, OSError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return UNKNOWN
    return 0


def corrupted(options: argparse.Namespace) -> int:
    """Print what the judge sees of each corruption. 0 when it sees all of them, 1 when not, 2 when that could not be tried."""
    try:
        with spark_session(chosen_master(options.master), chosen_conf(options.conf)) as spark:
            found = corrupt(options.run, options.seed, spark)
        tell(seen(found))
    except (JudgeError, OSError) as error:
        print(f"corrupt: {error}", file=sys.stderr)
        return UNKNOWN
    return int(not all(one.caught for one in found))


def tell(text: str) -> None:
    """Print and flush; characters that stdout cannot encode are escaped. Raises OSError when stdout is closed or not
    writable."""
    out = sys.stdout
    if out is None:
        raise OSError("stdout is closed")
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except OSError:
        # Send what is still buffered to /dev/null, or the flush at interpreter exit fails again.
        with suppress(OSError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), out.fileno())
        raise


def complain(line: str) -> int:
    """Print one line on stderr and `verdict: unknown` on stdout; return the exit code of unknown."""
    with suppress(OSError):
        print(f"judge: {line}", file=sys.stderr, flush=True)
    with suppress(OSError):
        tell("verdict: unknown")
    return UNKNOWN
