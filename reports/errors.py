"""The exception of the judge, a Spark failure as one line, and the reading of files that others may have broken."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Error lines for the user are cut to this many characters.
LINE_MAX = 300

#: First line of a Py4J error about a JVM exception. The next line is the exception, followed by its stack and causes.
JAVA_CALL = "An error occurred while calling "
CAUSE = "Caused by: "


class JudgeError(Exception):
    """The run cannot be judged: an input or a tool is missing or broken. The message is one line that names it and the
    remedy."""


def content_of(file: Path, named: str, form: str = "JSON") -> Any:
    """What is in a file of JSON or TOML. Raises JudgeError, whose line begins with `named`."""
    try:
        text = file.read_text("utf-8")
        return tomllib.loads(text) if form == "TOML" else json.loads(text)
    except OSError as error:
        raise JudgeError(f"{named}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise JudgeError(f"{named} is not {form}: {error}") from error


def row_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line; None when there is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def one_line(error: BaseException) -> str:
    """The most specific line of an error: Spark's `[CONDITION] ...` if there is one, else the first line."""
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
