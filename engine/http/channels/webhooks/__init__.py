"""Outgoing webhooks: every message of a channel is sent to HTTP servers of the service's choice, until they
take it.

Each message is a job for each webhook, so retries, leases and dead letters are those of the engine.
`delivery` makes one attempt at an address that is not private; `settings` signs it.
"""
