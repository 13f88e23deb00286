"""Keeps the pages of other sites from making a browser change something here (cross-site request forgery).

Asked for where a browser would show its access by itself: as a cookie, or because nobody is asked. A change then needs the
`Origin` of this site and the token of this browser, which a page of ours has in a form field or sends as a header. What is no
browser says nothing of an origin, and only must not send what a form of another site could.
"""

from __future__ import annotations

import hmac
import re
import secrets
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from engine.http.problems import Problem
from engine.http.security.roles import Access

CSRF_COOKIE = "ironclaim_csrf"
HEADER = "x-csrf-token"
FIELD = "csrf_token"
FIELDS_MAX = 200
#: What a form can send to another site without asking it first.
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def csrf_token(request: Request) -> str:
    """The token of this browser, for forms and scripts of ours; a new browser gets its cookie with the response."""
    known = request.cookies.get(CSRF_COOKIE, "")
    if _TOKEN.fullmatch(known):
        return known
    if not hasattr(request.state, "new_csrf"):
        request.state.new_csrf = secrets.token_urlsafe(32)
    return request.state.new_csrf


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form of ours, the last value of each. Raises Problem."""
    if _media_type(request) != _FORMS[0]:
        raise Problem(415, f"A form is sent as {_FORMS[0]}.")
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"))
    except ValueError as error:
        raise Problem(400, f"The form cannot be read: {error}.") from None


async def refuse_forged(request: Request, access: Access) -> None:
    """Raise Problem for a change that the page of another site may have made a browser ask for."""
    if access.ambient:
        await refuse_foreign(request)


async def refuse_foreign(request: Request) -> None:
    """Raise Problem for a request that is neither from a page of this site nor from something that is no browser."""
    headers = request.headers
    if "origin" not in headers and "sec-fetch-site" not in headers and "cookie" not in headers:
        if _media_type(request) in _FORMS:
            raise Problem(403, "A form is sent with the Origin of this site.")
        return
    if not _of_this_site(headers.get("origin", ""), headers.get("host", "")):
        raise Problem(403, "The page that this comes from is not of this site (Origin).")
    known, given = request.cookies.get(CSRF_COOKIE, ""), headers.get(HEADER)
    if given is None and _media_type(request) == _FORMS[0]:
        given = (await form_of(request)).get(FIELD)
    if not _TOKEN.fullmatch(known) or not hmac.compare_digest(known.encode(), (given or "").encode(errors="surrogateescape")):
        raise Problem(403, f"The token of this browser is missing or another one ({FIELD}); load the page again.")


def _of_this_site(origin: str, host: str) -> bool:
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
