"""The HTTP interface of the engine: a job API, DSPS's channel API and a page for operators, as one ASGI
application.

It needs the extra `ironclaim[http]` and has no logic of its own: what it answers comes from `AsyncQueue` and
`AsyncChannel`. `engine.http.application.application(settings)` makes the application, `ironclaim serve` runs
it.
"""
