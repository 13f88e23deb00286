"""DSPS's channel API, as the DSPS server has it: paths, bodies and status codes
(docs/guides/http-channels.md).

`settings` says which channels there are, `guarding` who may use them; `webhooks` sends messages on.
"""
