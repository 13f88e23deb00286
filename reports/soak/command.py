"""The command `soak`: draw what a soak has left as its page."""

from __future__ import annotations

import argparse

from reports import verdict

SCHEMA = 1
FILE = "soak.json"
PAGE_FILE = "soak.html"


def drawn(options: argparse.Namespace) -> tuple[str, int]:
    """Where the page is, and exit code 0. Raises JudgeError."""
    # What draws takes half a second to load, which other commands need not wait for.
    from reports.soak.page import document

    found = verdict.content(options.run, FILE, SCHEMA)
    page = options.run / PAGE_FILE
    verdict.place(page, document(found))
    return f"page: {page}", 0
