"""junit.xml: the verdict as CI systems show it. One test case per check: violated is a failure, unknown an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reports.verdict import JUNIT, place

#: Verdict of a check -> the element that tells of it.
ELEMENTS = {"violated": "failure", "unknown": "error"}

#: Characters that XML 1.0 has no place for.
UNSPEAKABLE = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def write(run: Path, decided: Mapping[str, Any]) -> None:
    """Put junit.xml in place in one step, whatever the verdict. Raises CannotJudge when the disk refuses."""
    place(run / JUNIT, render(decided))


def render(decided: Mapping[str, Any]) -> str:
    """The document. A verdict that no check explains is a test case of its own."""
    cases = [(f"{check['id']} {check['name']}", check["verdict"], check["why"], check["examples"]) for check in decided["checks"]]
    told = {one[1] for one in cases}
    if decided["verdict"] not in told:
        cases.append(("verdict", decided["verdict"], "; ".join(decided["reasons"]), []))
    run = spoken(str(decided["spec"].get("id", "run")))
    counts = {name: str(sum(one[1] == level for one in cases)) for level, name in SUMS.items()}
    suite = ElementTree.Element("testsuite", {"name": run, "tests": str(len(cases)), **counts})
    for name, verdict, why, examples in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=run, name=spoken(name))
        if verdict in ELEMENTS:
            element = ElementTree.SubElement(case, ELEMENTS[verdict], type=verdict, message=spoken(why))
            element.text = spoken("\n".join(examples or [why]))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, "unicode")}\n'


#: Verdict of a check -> the attribute that counts it.
SUMS = {"violated": "failures", "unknown": "errors"}


def spoken(words: str) -> str:
    """Words with a question mark for each character that XML cannot hold."""
    return UNSPEAKABLE.sub("?", words)
