"""From a template to a response: the environment of the templates, and what all of them may use.

Everything is escaped: names, payloads, errors and names of workers come from whoever can reach the server. No
template marks anything as safe, and none has scripts or styles inline, which the policy of the page would
refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any, cast
from urllib.parse import quote, urlencode

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from engine.errors import EngineError, counted, utc, utf8
from engine.http.access import Endpoint, access_of, csrf_token, declared, needs
from engine.http.answers import Problem, problem_of
from engine.http.describing import digits
from engine.http.settings import HttpSettings, Role
from engine.ops.admin import Altered
from engine.queue.looks import main_line
from engine.version import __version__

# -- How the page writes numbers, lengths of time and instants.

#: Instead of a value that is not known: an en dash.
UNKNOWN = "\u2013"
#: Units of lengths, the longest first.
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
#: Characters of a name that a table shows; the whole one is in its title.
_SHORT = 64


def number(value: float | None) -> str:
    """`12,345`, or a dash where it is not known."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.1f}"


def some(count: int, what: str) -> str:
    """`12,345 jobs`, `1 job`."""
    return counted(count, what, ",")


def length(ms: float | None) -> str:
    """`950 ms`, `4.2 s`, `12 min`, `3 h 20 min`, `5 d`, or a dash where it is not known."""
    if ms is None:
        return UNKNOWN
    if ms < 1_000:
        return f"{ms:.0f} ms" if ms >= 10 or float(ms).is_integer() else f"{ms:.1f} ms"
    number, (unit, size) = next(one for one in enumerate(_UNITS) if ms >= one[1][1])
    if unit == "s":
        return f"{round(ms / 1000, 1):g} s"
    whole = int(ms // size)
    smaller, smaller_size = _UNITS[number + 1]
    rest = int(ms % size // smaller_size)
    return f"{whole} {unit} {rest} {smaller}" if rest and whole < 10 else f"{whole} {unit}"


def from_now(ms: int, now_ms: int) -> str:
    """`3 min ago`, `in 12 s`, `now`."""
    apart_ms = ms - now_ms
    if abs(apart_ms) < 1_000:
        return "now"
    whole_ms = abs(apart_ms) // 1_000 * 1_000
    return f"in {length(whole_ms)}" if apart_ms > 0 else f"{length(whole_ms)} ago"


def instant(ms: int) -> str:
    """`2026-05-01 12:00:00.250 UTC`."""
    return f"{utc(ms):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"


def machine_instant(ms: int) -> str:
    """An instant as HTML's `time` takes it."""
    return f"{utc(ms):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def short(text: str) -> str:
    """A text as a table has room for it."""
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


#: Characters of a word for which a column of a table is made wide enough.
_WHOLE = 16
_BETWEEN = re.compile(r"[\s_.:/-]+")


def pieces(text: str) -> list[str]:
    """A name or an id as a table has room for it; a long one may be broken between these pieces."""
    shown = short(text)
    return re.split(r"(?<=[_.:/])", shown) if len(shown) > _WHOLE else [shown]


def fits(text: str) -> bool:
    """Whether each word of a name or an id is so short that a column is made wide enough for it."""
    return max(map(len, _BETWEEN.split(short(text)))) <= _WHOLE


# -- What the page says after a change. An address carries a word and a number, and never a sentence of
# somebody's own.

#: Word -> whether the change was made, and what is said of it.
_KNOWN: Mapping[str, tuple[bool, str]] = {
    "cancelled": (True, "The job was cancelled."),
    "runs-now": (True, "The job is claimable now."),
    "requeued": (True, "The job was requeued, with all its attempts."),
    "requeued-with-children": (True, "The job was requeued, and those that died with it wait for it again."),
    "discarded": (True, "The job was discarded."),
    "removed": (True, "The job was removed."),
    "changed": (False, "The job is in another state by now, so nothing was done."),
    "held": (False, "Another job has its unique key, so it stays dead."),
    "corrupt": (False, "Nobody can read this job, so it cannot run; it can be discarded."),
    "bulk": (True, "Changed: {jobs}."),
    "paused": (True, "Paused: nothing is claimed; jobs in hand go on."),
    "resumed": (True, "Resumed."),
    "not-paused": (False, "It was not paused."),
    "limit": (True, "The limit is set."),
    "no-limit": (True, "The limit was removed."),
    "schedule": (True, "The schedule was changed."),
    "ran": (True, "One more job of the schedule was enqueued."),
    "no-schedule": (False, "There is no schedule of this name any more."),
    "worker": (True, "The worker is told with its next sweep."),
}
#: Of a job that was changed, by the action.
_DONE = {
    "cancel": "cancelled",
    "run_now": "runs-now",
    "requeue": "requeued",
    "requeue_with_children": "requeued-with-children",
    "discard": "discarded",
    "remove": "removed",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence at the top of the page; `done`: the change was made."""

    done: bool
    sentence: str


def notice_of(query: Mapping[str, str]) -> Notice | None:
    """What an address says; None for nothing, and for a word that is not known."""
    known, count = _KNOWN.get(query.get("did", "")), digits(query.get("count", "0"))
    if known is None or count is None:
        return None
    return Notice(known[0], known[1].format(jobs=some(count, "job")))


def word_of(action: str, altered: Altered) -> str:
    """The word for what came of an action on a job."""
    return _DONE[action] if altered.done else altered.result


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
            "number": number,
            "some": some,
            "length": length,
            "instant": instant,
            "machine_instant": machine_instant,
            "from_now": from_now,
            "short": short,
            "pieces": pieces,
            "fits": fits,
            "main_line": main_line,
            # That of Jinja raises for a name without UTF-8.
            "urlencode": partial(urlencode, errors="backslashreplace"),
        }
    )
    return made


def query_of(fields: Mapping[str, object]) -> str:
    """The fields as the query of an address; those that are '' or None are left out."""
    given = {name: value for name, value in fields.items() if value not in ("", None)}
    return urlencode(given, errors="backslashreplace")


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


# -- How the page answers: its errors as pages, and who is not known is asked to sign in.


def view(role: Role, *, changes: bool = False) -> Any:
    """Declare what an endpoint of the page needs, as `needs` does; what goes wrong is answered as a page."""

    def decorate(endpoint: Endpoint) -> Endpoint:
        # The problem is told inside, so that the audit line has its status, and outside for who may not come
        # in.
        guarded: Any = needs(role, changes=changes)(_told(endpoint))
        return declared(_told(guarded), guarded.needed)

    return decorate


def _told(endpoint: Endpoint) -> Endpoint:
    @wraps(endpoint)
    async def shown(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Problem as problem:
            return problem_page(request, problem)
        except EngineError as error:
            return problem_page(request, problem_of(error))
        except HTTPException as error:
            return problem_page(request, Problem(error.status_code, error.detail))

    return shown


def problem_page(request: Request, problem: Problem) -> Response:
    """A problem as a page; a browser that has not signed in is sent there."""
    settings: HttpSettings = request.app.state.settings
    if problem.status == 401 and settings.tokens and settings.authorize is None and request.method == "GET":
        return RedirectResponse(address(request, "sign-in"), 303)
    response = page(request, "problem.html", problem.status, problem=problem)
    response.headers.update(problem.headers)
    return response
