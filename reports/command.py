"""The command line: arguments, the table on stdout, one line on stderr for any error, and the exit code."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from engine import command_line
from reports import slo, slo_file
from reports.capacity.command import add_arguments as capacity_arguments
from reports.capacity.command import plan_capacity
from reports.cluster import cluster
from reports.compare.command import add_arguments as compare_arguments
from reports.compare.command import compare
from reports.errors import JudgeError, one_line
from reports.interrupts import INTERRUPTS
from reports.judge import judge, require_run, to_stderr, withdraw
from reports.listing.command import add_arguments as list_arguments
from reports.listing.command import list_runs
from reports.models_table import side_by_side
from reports.nights import last_nights
from reports.seed import add_seed
from reports.session import CONF_VARIABLE, LOCAL, MASTER_VARIABLE, chosen_conf, chosen_master, spark_session
from reports.simulation.measured import add_arguments as simulation_arguments
from reports.simulation.measured import near_to_measured
from reports.table import COLUMNS, render
from reports.targets import words as target_words
from reports.targets.command import add_arguments as targets_arguments
from reports.targets.command import compare_targets
from reports.targets.promise import of_target
from reports.verdict import EXIT_CODES, exit_code, worst

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNKNOWN = EXIT_CODES["unknown"]

#: What a command says that Ctrl-C or SIGTERM has ended.
INTERRUPTED = "interrupted"

#: The command of the wheel.
INSTALLED = "ironclaim-report"


def mutants(options: argparse.Namespace) -> tuple[str, int]:
    """The matrix of planted defects and checks."""
    # What draws takes half a second to load, which other commands need not wait for.
    from reports.planted import caught_by

    return caught_by(options.folder), 0


def soaked(options: argparse.Namespace) -> tuple[str, int]:
    """The page of a soak; it draws, too."""
    from reports.soak import drawn

    return drawn(options)


#: Commands that need no Spark: each returns the text to print and the exit code.
OTHERS: dict[str, Callable[[argparse.Namespace], tuple[str, int]]] = {
    "capacity": plan_capacity,
    "compare": compare,
    "list": list_runs,
    "models": lambda options: (side_by_side(options.run), 0),
    "mutants": mutants,
    "simulation": near_to_measured,
    "soak": soaked,
    "targets": compare_targets,
    "nights": lambda options: (last_nights(options.folder), 0),
    "slo": lambda options: (slo.listed(slo_file.read(options.file, channels=options.channels)), 0),
}


class Parser(command_line.Parser):
    """Argument errors are one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNKNOWN, f"{self.prog}: {self.hinted(message)}\n")


def program() -> str:
    """How the command is called here: as the wheel installs it, or in a checkout."""
    return INSTALLED if Path(sys.argv[0]).name == INSTALLED else "python -m reports"


def verb(commands: Any, name: str, does: str) -> argparse.ArgumentParser:
    """The parser of one verb, whose --help begins with what the list says of it."""
    return commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = Parser(prog=program(), description="Judge recorded runs.")
    commands = root.add_subparsers(dest="command", required=True)
    command = verb(commands, "judge", "decide valid, violated or unknown, and write verdict.json")
    command.add_argument("runs", type=Path, nargs="+", metavar="run", help="folder of a run, such as runs/latest")
    command.add_argument("--slo", type=Path, help="file of service level objectives (default: slo.toml of the run, if any)")
    command.add_argument("--all", action="store_true", help="list every check, not only those that are not clean")
    command.add_argument(
        "--begin-on-line", action="store_true", help="start Spark at once, and read the runs when a line comes on stdin"
    )
    spark_options(command)
    command = verb(commands, "slo", "validate a file of service level objectives, and print them")
    command.add_argument("file", type=Path, help="the file, such as bench/slo.toml")
    command.add_argument("--channels", action="store_true", help="the objectives are for runs of channels")
    command = verb(commands, "corrupt", "edit a valid run in every known way, and see whether the judge sees each")
    command.add_argument("run", type=Path, help="folder of the run, such as runs/latest")
    add_seed(command, "which jobs are edited")
    spark_options(command)
    compare_arguments(verb(commands, "compare", "is B faster or slower than A, from repetitions of both"))
    list_arguments(verb(commands, "list", "all runs of a folder with their verdicts, printed and as a page"))
    targets_arguments(verb(commands, "targets", "other job queues compared by their runs, printed and as a page"))
    capacity_arguments(verb(commands, "capacity", "a plan from an earlier measurement: workers, shards, memory, cost"))
    simulation_arguments(verb(commands, "simulation", "how near the queueing simulator comes to measured steps"))
    command = verb(commands, "soak", "memory and latency of a soak over time, as a page")
    command.add_argument("run", type=Path, help="folder of the soak, such as runs/latest")
    command = verb(commands, "models", "the table of a comparison of models, printed and as a page")
    command.add_argument("run", type=Path, help="folder of the comparison, such as runs/latest")
    command = verb(commands, "mutants", "which check caught which planted defect, printed and as a page")
    command.add_argument("folder", type=Path, help="folder of the result, such as runs/mutants/20260101-000000-seed1")
    command = verb(commands, "nights", "the last nights, cells by nights, as a page")
    command.add_argument("folder", type=Path, nargs="?", default=Path("runs/nightly"), help="their folder (default: %(default)s)")
    command = verb(commands, "cluster", "a standalone Spark cluster on this machine, until a signal ends it")
    command.add_argument("--workers", type=int, default=2, help="how many workers (default: %(default)s)")
    command.add_argument("--cores", type=int, default=1, help="cores that each offers (default: %(default)s)")
    command.add_argument("--memory", default="2g", help="memory that each offers (default: %(default)s)")
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
    if options.command in OTHERS:
        return without_spark(options)
    if options.command == "cluster":
        return held(options)
    if options.command == "corrupt":
        return corrupted(options)
    return judged(options)


def judged(options: argparse.Namespace) -> int:
    """Judge the runs in one Spark session and print their tables. Returns the exit code of the worst verdict."""
    codes: list[int] = []
    current: list[Path] = []
    try:
        where = {"master": chosen_master(options.master), "conf": chosen_conf(options.conf)}
        if not options.begin_on_line:
            for run in options.runs:
                require_run(run)
        with ExitStack() as stack:
            shared = options.begin_on_line or len(options.runs) > 1
            spark = started(stack, where) if shared else None
            if options.begin_on_line and not sys.stdin.readline():
                return complain("nothing was to be judged")
            for run in options.runs:
                current[:] = [run]
                decided = judge(run, **where, spark=spark, objectives=options.slo)
                INTERRUPTS.check()
                table = target_words.render if of_target(decided["spec"]) else render
                tell(table(decided, run, columns=shutil.get_terminal_size((COLUMNS, 0)).columns, every=options.all))
                codes.append(exit_code(decided))
    except JudgeError as error:
        return complain(str(error))
    except KeyboardInterrupt:
        with suppress(JudgeError):
            for run in current:
                withdraw(run)
        return complain(INTERRUPTED)
    except OSError as error:
        return complain(f"the table cannot be printed: {error.strerror or error}")
    except Exception as error:
        return complain(f"the judge failed: {one_line(error)}")
    return worst(codes)


def started(stack: ExitStack, where: Mapping[str, Any]) -> SparkSession | None:
    """A session for all runs. None when it does not start: the judge then tries itself, so that the verdict has the reason."""
    to_stderr("judge: starting Spark")
    try:
        return stack.enter_context(spark_session(**where))
    except JudgeError:
        return None


def without_spark(options: argparse.Namespace) -> int:
    """Run a command that prints one text and needs no Spark, and return its exit code."""
    try:
        text, code = OTHERS[options.command](options)
        tell(text)
    except JudgeError as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return UNKNOWN
    except OSError as error:
        print(f"{options.command}: the table cannot be printed: {error.strerror or error}", file=sys.stderr)
        return UNKNOWN
    except KeyboardInterrupt:
        print(f"{options.command}: {INTERRUPTED}", file=sys.stderr)
        return UNKNOWN
    return code


def held(options: argparse.Namespace) -> int:
    """Keep a cluster until a signal ends it. 0 after a signal, 2 when it did not come up."""
    try:
        with suppress(KeyboardInterrupt), cluster(options.workers, cores=options.cores, memory=options.memory) as address:
            tell(address)
            while not INTERRUPTS.asked:
                signal.pause()
    except (JudgeError, OSError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return UNKNOWN
    return 0


def corrupted(options: argparse.Namespace) -> int:
    """Print what the judge sees of each corruption. 0 when it sees all of them, 1 when not, 2 when that could not be tried to the
    end; what was judged by then is printed, too."""
    # Other commands do without PySpark, which it imports.
    from reports.corrupt.command import Seen, corrupt
    from reports.corrupt.command import render as seen

    found: list[Seen] = []
    ended = ""
    try:
        require_run(options.run)
        with spark_session(chosen_master(options.master), chosen_conf(options.conf)) as spark:
            for one in corrupt(options.run, options.seed, spark):
                found.append(one)
                INTERRUPTS.check()
    except KeyboardInterrupt:
        ended = f"{INTERRUPTED} after {len(found)} kinds"
    except (JudgeError, OSError) as error:
        ended = str(error)
    except Exception as error:
        ended = f"the judge failed: {one_line(error)}"
    try:
        if found:
            tell(seen(found))
    except OSError as error:
        ended = ended or f"the table cannot be printed: {error.strerror or error}"
    if ended:
        print(f"corrupt: {ended}", file=sys.stderr)
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
