"""The one error of the judge, and how a Spark failure becomes one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: An error that is passed on to people is cut to this many characters.
LINE_MAX = 300

#: How Py4J begins what it says about an exception of the JVM. The next line is the exception, then its stack and causes.
JAVA_CALL = "An error occurred while calling "
CAUSE = "Caused by: "


class CannotJudge(Exception):
    """There is nothing to judge with or to judge; the message is one line that names it and what helps."""


def one_line(error: BaseException) -> str:
    """The line of an error that says most: Spark's `[CONDITION] ...` where there is one, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith(JAVA_CALL):
        return java_line(lines)[:LINE_MAX]
    conditions = [line[match.start() :] for line in lines if (match := re.search(r"\[[A-Z][A-Z0-9_.]{3,}\]", line))]
    text = (conditions or lines or [""])[0]
    return f"{type(error).__name__}: {text}"[:LINE_MAX] if text else type(error).__name__


def java_line(lines: Sequence[str]) -> str:
    """The innermost cause of an exception of the JVM."""
    causes = [line.removeprefix(CAUSE) for line in lines if line.startswith(CAUSE)]
    return causes[-1] if causes else " ".join(line.lstrip(": ") for line in lines[1:2]) or "Spark failed"
