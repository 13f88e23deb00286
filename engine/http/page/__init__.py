"""The page for operators: queues, jobs, workers, schedules and limits, to look at and, where that is allowed,
to change.

`looks` reads a queue, at most two calls a view; `live` samples it for all who look at it. `job_views` and
`queue_views` make of that what the templates show.
"""
