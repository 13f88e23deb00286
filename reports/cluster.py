"""A standalone Spark cluster on this machine: a master and some workers on free loopback ports, gone when their owner is."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from reports.errors import JudgeError
from reports.interrupts import INTERRUPTS
from reports.session import FOREIGN, SIZE, last_line, require_java

# Child processes that do not outlive their parent, however that ends.


#: From prctl.h: the signal that a process gets when its parent is gone.
PR_SET_PDEATHSIG = 1


def dying_with_parent() -> Callable[[], None] | None:
    """The `preexec_fn` of a child that the kernel kills when the thread that starts it is gone; None where there is no prctl."""
    if not sys.platform.startswith("linux"):
        return None
    # Loaded before the fork: after it nothing may block.
    prctl, parent_pid = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def arm() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # A parent that died before the line above sends no signal.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)

    return arm


T = TypeVar("T")

LOOPBACK = "127.0.0.1"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"

#: What the master logs about itself, and about each worker.
ADDRESS = re.compile(r"Starting Spark master at (spark://\S+:\d+)")
REGISTERED = "Registering worker"

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOOK_S = 0.1

#: Heap of the master and of each worker; they only start and watch executors.
DAEMON_MEMORY = "256m"

WORKERS_MAX = 64
CORES_MAX = 1_024


@contextmanager
def cluster(workers: int = 2, *, cores: int = 1, memory: str = "2g") -> Iterator[str]:
    """The address of a cluster that is there while the block runs. `cores` and `memory` are those that each worker offers.

    Raises JudgeError when Java or PySpark is missing, for a wrong argument, and when the cluster does not come up.
    """
    check(workers, cores, memory)
    require_java()
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="ironclaim-cluster-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        try:
            log = scratch / "master.log"
            started.append(start(scratch, log, MASTER, "--host", LOOPBACK, "--port", "0", "--webui-port", "0"))
            address = wait_for(log, started, lambda text: next(iter(ADDRESS.findall(text)), None))
            offer = ("--host", LOOPBACK, "--webui-port", "0", "--cores", str(cores), "--memory", memory)
            for number in range(1, workers + 1):
                place = ("--work-dir", str(scratch / f"worker-{number}"))
                started.append(start(scratch, scratch / f"worker-{number}.log", WORKER, *offer, *place, address))
            wait_for(log, started, lambda text: text.count(REGISTERED) >= workers or None)
            yield address
        finally:
            stop(started)


def check(workers: int, cores: int, memory: str) -> None:
    """Raise JudgeError for an argument out of its bounds."""
    for name, value, most in (("workers", workers, WORKERS_MAX), ("cores", cores, CORES_MAX)):
        if not 1 <= value <= most:
            raise JudgeError(f"{name} is {value}: it must be from 1 to {most}")
    if not SIZE.fullmatch(memory):
        raise JudgeError(f"memory is {memory!r}: it must be a size with its unit, such as 512m or 4g")


def start(scratch: Path, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a Java program of Spark that dies with this process. Raises JudgeError when PySpark is missing."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise JudgeError("pyspark is not installed: `make setup` installs what the judge needs")
    home = next(iter(found.submodule_search_locations))
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment |= {
        "SPARK_HOME": home,
        # Web pages too are bound to this address.
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")))),
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(Path(home, "bin", "spark-class")), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=scratch,
            env=environment,
            start_new_session=True,
            preexec_fn=dying_with_parent(),
        )


def wait_for(log: Path, started: list[subprocess.Popen[bytes]], found: Callable[[str], T | None]) -> T:
    """What `found` finds in the log. Raises JudgeError when a process ends or time is up before."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while (result := found(log.read_text(errors="replace"))) is None:
        INTERRUPTS.check()
        gone = any(process.poll() is not None for process in started)
        if gone or time.monotonic() >= deadline_s:
            what = "ended at once" if gone else f"did not come up within {START_TIMEOUT_S:.0f} s"
            raise JudgeError(f"the Spark cluster {what}: {last_line(log)}")
        time.sleep(LOOK_S)
    return result


def stop(started: list[subprocess.Popen[bytes]]) -> None:
    """End the workers, which end their executors, then the master."""
    for process in reversed(started):
        process.terminate()
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    for process in reversed(started):
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline_s - time.monotonic()))
        # What is left of its session: executors of a worker that did not end them.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
