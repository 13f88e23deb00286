"""How the page answers: its errors as pages, and who is not known is asked to sign in."""

from __future__ import annotations

from functools import wraps
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from engine.errors import EngineError
from engine.http.page import rendering
from engine.http.problems import Problem, problem_of
from engine.http.security.access import Endpoint, declared, needs
from engine.http.security.roles import Role
from engine.http.settings import HttpSettings


def view(role: Role, *, changes: bool = False) -> Any:
    """Declare what an endpoint of the page needs, as `needs` does; what goes wrong is answered as a page."""

    def decorate(endpoint: Endpoint) -> Endpoint:
        # The problem is told inside, so that the audit line has its status, and outside for who may not come in.
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
        return RedirectResponse(rendering.address(request, "sign-in"), 303)
    response = rendering.page(request, "problem.html", problem.status, problem=problem)
    response.headers.update(problem.headers)
    return response
