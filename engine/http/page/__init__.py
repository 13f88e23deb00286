"""The page for operators: queues, jobs, workers, schedules and limits, to look at and, where that is allowed, to change.

`looks` reads, at most two calls a view; `views` makes of it what the templates show; `reading` and `changing` are the endpoints;
`live` samples a queue for all who look at it.
"""

from __future__ import annotations

from engine.http.page.routes import routes as routes
