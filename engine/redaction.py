"""Urls and other texts without the passwords in them, for errors, logs, and what commands print. One place for all of them.

A password may hold any character, so it cannot be found by reading a url as a url: what could belong to one is left out.
"""

from __future__ import annotations

import re

HIDDEN = "***"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
#: An option of a url, or a word of the DSN of a database.
_OPTION = re.compile(
    r"((?<![a-z])(?:[a-z_]*(?:password|passwd|pwd|secret|token|api_?key)|username)\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE
)
#: Hosts with ports that are numbers, up to where a path begins: nothing in them can be a password.
_HOSTS = re.compile(r"(?:\[[0-9a-f:.%]+\]|[\w.-]*)(?::\d*)?(?:,(?:\[[0-9a-f:.%]+\]|[\w.-]*)(?::\d*)?)*(?=[/?]|$)", re.IGNORECASE)
_QUERY = re.compile(r"[?#]")
_USER = re.compile(r"([a-z][a-z0-9+.-]*://).*@", re.IGNORECASE | re.DOTALL)


def redacted_url(url: str) -> str:
    """A url, also one that cannot be read, with `***` for whatever may be a user, a password or a token."""
    begin = _SCHEME.match(url)
    scheme, rest = ("", url) if begin is None else (begin.group(), url[begin.end() :])
    at, option = rest.rfind("@"), _OPTION.search(rest)
    place = rest[at + 1 :]
    if _HOSTS.match(place) is None or (option is not None and option.start() < at):
        # Nobody can tell where the password ends.
        return f"{scheme}{HIDDEN}"
    option = _OPTION.search(place)
    if option is not None:
        place = place[: option.end(1)] + HIDDEN
    return f"{scheme}{HIDDEN}@{place}" if at >= 0 else f"{scheme}{place}"


def without_query(url: str) -> str:
    """A url of a receiver, also one that cannot be read, with `***` for its user, and for all of its query and fragment: anything
    may be a secret there."""
    end = _QUERY.search(url)
    return redacted_url(url) if end is None else f"{redacted_url(url[: end.start()])}?{HIDDEN}"


def redacted(text: str) -> str:
    """A text in which urls and DSNs may stand, with `***` for their passwords."""
    if "=" in text:
        text = _OPTION.sub(rf"\1{HIDDEN}", text)
    return _USER.sub(rf"\1{HIDDEN}@", text) if "://" in text else text
