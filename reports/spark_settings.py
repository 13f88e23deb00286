"""Where Spark runs and with which settings: from the command line, or from the environment where that says nothing."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.errors import JudgeError

#: This checkout.
ROOT = Path(__file__).resolve().parents[1]

#: Environment variables: the Spark master, and settings as `key=value`, quoted as in a shell where a value has blanks.
MASTER_VARIABLE = "IRONCLAIM_SPARK_MASTER"
CONF_VARIABLE = "IRONCLAIM_SPARK_CONF"

#: The master of who names none: this machine, all its cores.
LOCAL = "local[*]"

#: Settings on which the verdict depends, or which the judge needs for itself.
FIXED = (
    "spark.master",
    "spark.app.name",
    "spark.sql.ansi.enabled",
    "spark.sql.session.timeZone",
    "spark.sql.warehouse.dir",
    "spark.ui.showConsoleProgress",
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
