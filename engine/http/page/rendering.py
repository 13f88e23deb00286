"""From a template to a response: the environment of the templates, and what all of them may use.

Everything is escaped: names, payloads, errors and names of workers come from whoever can reach the server. No template marks
anything as safe, and none has scripts or styles inline, which the policy of the page would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, cast
from urllib.parse import quote, urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from engine.errors import utf8
from engine.http.page import words
from engine.http.security.access import access_of
from engine.http.security.forgery import csrf_token
from engine.http.settings import HttpSettings
from engine.version import __version__

#: Of scripts and styles, so that a browser takes the new ones after an upgrade.
STATIC_VERSION = __version__


@cache
def environment() -> jinja2.Environment:
    """The templates, which are files beside this one. A name that a template does not know is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("engine.http.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    cast("dict[str, Any]", made.filters).update(  # pyright: ignore[reportUnknownMemberType]
        {
            "number": words.number,
            "length": words.length,
            "instant": words.instant,
            "machine_instant": words.machine_instant,
            "from_now": words.from_now,
            "short": words.short,
            "last_line": words.last_line,
            # That of Jinja raises for a name without UTF-8.
            "urlencode": partial(urlencode, errors="backslashreplace"),
        }
    )
    return made


def page(request: Request, template: str, status: int = 200, **shown: Any) -> Response:
    """A whole page, or a part of one."""
    return HTMLResponse(utf8(text(request, template, **shown)), status)


def text(request: Request, template: str, **shown: Any) -> str:
    """A template with what it shows."""
    return environment().get_template(template).render(**_common(request), **shown)


def address(request: Request, *segments: str, query: str = "") -> str:
    """The path of a view, also where the application is mounted somewhere; each segment is quoted."""
    path = "/".join(quote(utf8(segment), safe="") for segment in segments)
    return f"{request.scope.get('root_path', '')}/{path}" + (f"?{query}" if query else "")


def _common(request: Request) -> Mapping[str, Any]:
    """What every template may use."""
    settings: HttpSettings = request.app.state.settings
    access = access_of(request) if hasattr(request.state, "access") else None
    return {
        "address": partial(address, request),
        "csrf_token": partial(csrf_token, request),
        "access": access,
        "may_change": settings.allow_changes and access is not None and access.may("operate"),
        "may_define": settings.allow_changes and access is not None and access.may("admin"),
        "allow_changes": settings.allow_changes,
        "show_payloads": settings.show_payloads,
        "signed_in": bool(settings.tokens) and settings.authorize is None,
        "with_channels": settings.channels is not None,
        "with_runs": settings.runs is not None,
        "static_version": STATIC_VERSION,
    }
