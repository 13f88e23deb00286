"""One Spark session per verdict, and its settings: no console output, loopback only, in UTC, scratch files removed afterwards."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.class_archive import OPTIONS, ClassArchive
from reports.errors import JudgeError
from reports.interrupts import INTERRUPTS, blocked

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# The names of Java that PySpark looks up again for each column that it makes: here the JVM is asked once
# for each.
#
# A third of all round trips of a judging were such questions, and for some of them the JVM searched all
# jars of Spark.


#: What columns are made by, each by the name that PySpark uses.
ASKED_OFTEN = ("org.apache.spark.sql.functions", "functions", "PythonUtils", "PythonSQLUtils")


def remember(context: SparkContext) -> None:
    """Keep these classes, and each static function of theirs when it has been used once, as long as the JVM lives."""
    from py4j.java_gateway import JavaClass, JavaMember

    class Known(JavaClass):
        """A class whose functions are looked up once."""

        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            if isinstance(found, JavaMember):
                self.__dict__[name] = found
            return found

    jvm: Any = context._jvm
    for name in ASKED_OFTEN:
        asked = getattr(jvm, name)
        setattr(jvm, name, Known(asked._fqn, asked._gateway_client))


# Wait until a cluster has given the judge an executor: without one Spark waits for ever, and says so only
# in its log.


#: Executors are processes of Java on machines that may be busy.
START_TIMEOUT_S = 60.0
LOOK_S = 0.1


def require_executor(context: SparkContext, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return when an executor is there, or when the master is local and needs none. Raises JudgeError when none comes in time."""
    # PySpark declares parts of a context as optional; a started one has them.
    started: Any = context
    if started.master.startswith("local"):
        return
    scala = started._jsc.sc()
    deadline_s = time.monotonic() + timeout_s
    # The driver is counted as well.
    while scala.getExecutorMemoryStatus().size() <= 1:
        INTERRUPTS.check()
        if time.monotonic() >= deadline_s:
            size = context.getConf().get("spark.executor.memory", "1g")
            raise JudgeError(
                f"{context.master} gave no executor within {timeout_s:.0f} s: its workers are gone, busy, or have less memory "
                f"than spark.executor.memory, {size}"
            )
        time.sleep(LOOK_S)


# Where Spark runs and with which settings: from the command line, or from the environment where that says
# nothing.


#: This checkout.
ROOT = Path(__file__).resolve().parents[1]

#: Environment variables: the Spark master, and settings as `key=value`, quoted as in a shell where a value has blanks.
MASTER_VARIABLE = "IRONCLAIM_SPARK_MASTER"
CONF_VARIABLE = "IRONCLAIM_SPARK_CONF"

#: The master of who names none: this machine, all its cores.
LOCAL = "local[*]"

#: Settings on which the verdict depends, or which the judge needs for itself.
FIXED = (
    *("spark.master", "spark.app.name", "spark.sql.ansi.enabled", "spark.sql.session.timeZone"),
    *("spark.sql.warehouse.dir", "spark.ui.showConsoleProgress"),
)

#: Settings that are sizes: Java refuses others with a page of its own.
SIZES = ("spark.driver.memory", "spark.executor.memory", "spark.executor.memoryOverhead", "spark.driver.maxResultSize")

KEY = re.compile(r"spark\.[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*")
SIZE = re.compile(r"[1-9]\d*[kmgt]b?", re.IGNORECASE)


def chosen_master(option: str | None) -> str:
    """The master to use. Raises JudgeError for an empty one."""
    master = os.environ.get(MASTER_VARIABLE, LOCAL) if option is None else option
    if not master.strip():
        raise JudgeError("the Spark master is empty: name one, such as local[2] or spark://host:7077")
    return master


def chosen_conf(options: Sequence[str]) -> dict[str, str]:
    """The further settings: those of the environment, then those of the command line. Raises JudgeError for a wrong one."""
    try:
        told = shlex.split(os.environ.get(CONF_VARIABLE, ""))
    except ValueError as error:
        raise JudgeError(f"{CONF_VARIABLE} cannot be split into key=value: {error}") from error
    return dict(setting(text) for text in (*told, *options))


def setting(text: str) -> tuple[str, str]:
    """One `key=value`. Raises JudgeError naming the key and what it must be."""
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not KEY.fullmatch(key) or not value:
        raise JudgeError(f"Spark setting {text!r}: it must be key=value, and the key must begin with spark.")
    if key in FIXED:
        raise JudgeError(f"Spark setting {key} cannot be set: the judge needs its own")
    if key in SIZES and not SIZE.fullmatch(value):
        raise JudgeError(f"Spark setting {key} is {value!r}: it must be a size with its unit, such as 512m or 4g")
    return key, value


def by_place(master: str) -> Mapping[str, str]:
    """Settings that follow from where the master is: on this machine everything stays on the loopback interface, and executors
    elsewhere find this checkout where it is here."""
    settings = {} if master.startswith("local") else {"spark.executorEnv.PYTHONPATH": str(ROOT)}
    host = re.fullmatch(r"spark://\[?([^,\]]+)\]?:\d+", master)
    if master.startswith("local") or (host and is_loopback(host[1])):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def is_loopback(host: str) -> bool:
    """True for this machine's own address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "PYSPARK_SUBMIT_ARGS"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"),
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
    with suppress(AttributeError):
        # A JVM that an interrupt ends hangs up on it, of which it would print a traceback.
        spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[union-attr]
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
