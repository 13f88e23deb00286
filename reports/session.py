"""One Spark session per verdict: no console output, loopback only, in UTC, scratch files removed afterwards."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.class_archive import OPTIONS, ClassArchive
from reports.errors import JudgeError
from reports.executors import require_executor
from reports.interrupts import INTERRUPTS, blocked
from reports.java_names import remember
from reports.spark_settings import LOCAL, by_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The oldest Java that Spark 4 runs on.
JAVA_MIN = 17
JAVA_HELP = "install the Debian package openjdk-17-jre-headless, or set JAVA_HOME to a Java 17 or newer"

#: For small histories adaptive planning costs more than it saves. ANSI mode: an overflow raises.
SETTINGS = {
    "spark.app.name": "ironclaim-judge",
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    # Each sort, join and aggregation begins with a page of memory that is filled with zeros: 64 MB by default, for a few rows.
    "spark.buffer.pageSize": "4m",
    # Spark writes each plan down for its own page, which is off, and looks in each for what filters imply for others.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "0",
    "spark.sql.debug.maxToStringFields": "1",
    "spark.sql.constraintPropagation.enabled": "false",
    # Batches for Python are bounded by rows alone: to weigh a batch after each row takes four times as long as all the rest.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.shuffle.partitions": "4",
}


#: Loggers to silence: PySpark logs each failed query with its Java stack, Py4J each interrupted call. The judge prints one
#: line.
LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "py4j")

#: Environment variables that would select another Spark installation or its settings.
FOREIGN = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_DIRS",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
)

#: A JVM that has nothing more to do ends in this; one that writes an archive of its classes took 5 s of an idle core for that.
EXIT_S = 10.0
ARCHIVE_S = 120.0

#: File for the JVM's output, in the scratch folder.
LOG = "spark.log"


@contextmanager
def spark_session(master: str = LOCAL, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that is stopped, with its JVM, when the block ends. The JVM's output goes to a scratch file, not to the
    terminal.

    Raises JudgeError when Java or PySpark is missing or the session does not start.
    """
    archive = ClassArchive(require_java(), jars())
    with tempfile.TemporaryDirectory(prefix="ironclaim-spark-", ignore_cleanup_errors=True) as scratch:
        gateway: Any = None
        spark: SparkSession | None = None
        try:
            with INTERRUPTS.held():
                gateway = launch(master, Path(scratch), conf or {}, archive.option())
            INTERRUPTS.check()
            with blocked():
                spark = connect(master, Path(scratch), gateway, conf or {})
            yield spark
        finally:
            with INTERRUPTS.held():
                stop(spark, gateway, archive)


def configuration(master: str, scratch: Path, conf: Mapping[str, str]) -> Any:
    """The SparkConf of the judge, with further settings."""
    from pyspark import SparkConf

    settings = SETTINGS | {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    settings |= {**by_place(master), **conf}
    return SparkConf().setMaster(master).setAll(list(settings.items()))


def launch(master: str, scratch: Path, conf: Mapping[str, str], option: str) -> Any:
    """Start the JVM, with one option more and its output in `scratch/spark.log`, and return the gateway to it. Raises JudgeError
    when PySpark is missing or the JVM does not start."""
    try:
        from pyspark.java_gateway import launch_gateway
    except ImportError as error:
        raise JudgeError(f"{error.name or 'pyspark'} is not installed: `make setup` installs what the judge needs") from error
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    log = scratch / LOG
    try:
        with log.open("wb") as noise, without_environment():
            told = configuration(master, scratch, conf)
            told.set(OPTIONS, f"{told.get(OPTIONS)} {option}")
            return launch_gateway(told, {"stdout": noise, "stderr": noise})
    except Exception as error:
        raise JudgeError(f"Spark does not start on master {master}: {last_line(log) or error}") from error


def connect(master: str, scratch: Path, gateway: Any, conf: Mapping[str, str]) -> SparkSession:
    """A session in the JVM. Raises JudgeError when it does not start."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        context = SparkContext(conf=configuration(master, scratch, conf), gateway=gateway)
    except Exception as error:
        raise JudgeError(f"Spark does not start on master {master}: {last_line(scratch / LOG) or error}") from error
    remember(context)
    context.setLogLevel("OFF")
    context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
    require_executor(context)
    return SparkSession(context)


@contextmanager
def without_environment() -> Iterator[None]:
    """Remove the variables of another Spark installation from the environment while the block runs."""
    foreign = {name: os.environ.pop(name) for name in FOREIGN if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(foreign)


def stop(spark: SparkSession | None, gateway: Any, archive: ClassArchive) -> None:
    """Stop the session and wait for the JVM to exit, which it does when its stdin closes, and for what it leaves to others.

    After an interrupt no further call is made to the JVM: the interrupted call may still hold the connection.
    """
    if gateway is None:
        return
    if not INTERRUPTS.asked:
        with suppress(Exception):
            if spark is not None:
                spark.stop()
        with suppress(Exception):
            gateway.shutdown()
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return
    if INTERRUPTS.asked:
        # One that writes an archive would not hurry for a softer signal.
        process.kill() if archive.making else process.terminate()
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(ARCHIVE_S if archive.making else EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    archive.keep(process.returncode)


def require_java() -> str:
    """Where the Java is that Spark will run on, and what it says of itself. Raises JudgeError, with the package to install, where
    there is none or an older one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise JudgeError(f"Spark needs Java, and there is none on PATH: {JAVA_HELP}")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        where = f"JAVA_HOME is {home}, where there is no" if home else f"{java} is no"
        raise JudgeError(f"Spark needs Java, and {where} Java that runs: {JAVA_HELP}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < JAVA_MIN:
        found = f"version {version[1]}" if version else "of an unknown version"
        raise JudgeError(f"Spark needs Java {JAVA_MIN} or newer, and {java} is {found}: {JAVA_HELP}")
    return f"{Path(java).resolve()}\n{output}"


def jars() -> Path:
    """The folder of the classpath, which is empty where PySpark is missing: `launch` says so."""
    found = find_spec("pyspark")
    return Path(found.origin or "").parent / "jars" if found else Path(os.devnull)


def last_line(path: Path) -> str:
    """The last non-empty line of a log, cut to a readable length."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
