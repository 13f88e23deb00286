"""The verbs that only look: what `reports` lists and judges, and what is installed."""

from __future__ import annotations

import argparse
import sys

from chaos import doctor as tools
from chaos.interrupts import Interrupts
from chaos.judge import judge, judge_command, listing, shown


def runs(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """List all runs."""
    return shown(["list", str(arguments.runs.absolute())], interrupts)


def show(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Judge a recorded run again."""
    run = arguments.run.absolute()
    words = ["--slo", str(arguments.slo.absolute())] if arguments.slo else []
    command = [*judge_command(run), *words, *listing(every=arguments.all)]
    code, complaint = judge(run, interrupts, command)
    if complaint:
        print(f"chaos: {complaint}", file=sys.stderr)
    return code


def doctor(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Look for all tools."""
    with interrupts.raised():
        return tools.main()
