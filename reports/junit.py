"""junit.xml: the verdict as CI systems show it. One test case per check: violated is a failure, unknown an error. And one per
service level objective: missed is a failure, unknown an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reports import slo
from reports.verdict import JUNIT, place

#: Verdict of a check, or result of an objective -> the XML element that reports it.
ELEMENTS = {"violated": "failure", "missed": "failure", "unknown": "error"}

#: The attributes that count the elements.
SUMS = {"failures": "failure", "errors": "error"}

#: Characters that XML 1.0 does not allow.
UNSPEAKABLE = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def write(run: Path, decided: Mapping[str, Any]) -> None:
    """Write junit.xml atomically, whatever the verdict. Raises JudgeError when it cannot be written."""
    place(run / JUNIT, render(decided))


def render(decided: Mapping[str, Any]) -> str:
    """The document. If no check has the overall verdict, an extra test case reports it."""
    cases = [(f"{check['id']} {check['name']}", check["verdict"], check["why"], proof(check)) for check in decided["checks"]]
    reported = {one[1] for one in cases}
    if decided["verdict"] not in reported:
        cases.append(("verdict", decided["verdict"], "; ".join(decided["reasons"]), []))
    cases += [(f"slo {line['objective']}", line["result"], shortfall(line), []) for line in decided.get("slo", ())]
    run = spoken(str(decided["spec"].get("id", "run")))
    counts = {name: str(sum(ELEMENTS.get(one[1]) == element for one in cases)) for name, element in SUMS.items()}
    suite = ElementTree.Element("testsuite", {"name": run, "tests": str(len(cases)), **counts})
    for name, verdict, why, examples in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=run, name=spoken(name))
        if verdict in ELEMENTS:
            element = ElementTree.SubElement(case, ELEMENTS[verdict], type=verdict, message=spoken(why))
            element.text = spoken("\n".join(examples or [why]))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, "unicode")}\n'


def proof(check: Mapping[str, Any]) -> list[str]:
    """The examples of a check, and the rows that prove the first one."""
    return [*check["examples"], *(f"  {row}" for row in check.get("evidence", ()))]


def shortfall(line: Mapping[str, Any]) -> str:
    """What an objective wants and what the run has."""
    note = f" ({line['note']})" if line["note"] else ""
    return f"{line['objective']} must be {slo.wanted(line)}, it is {slo.measured(line)}{note}"


def spoken(words: str) -> str:
    """The text with a question mark for each character that XML does not allow."""
    return UNSPEAKABLE.sub("?", words)
