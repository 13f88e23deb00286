"""A durable channel in the format of DSPS, and where its messages are.

`asynchronous` has the interface for asyncio; that of `synchronous` is generated from it (`make generate`).
What a call does is decided without I/O. `steps` says what a step is, how callers wait, and which steps a call
on one storage has; `several_storages` those on several. `session_state` remembers a storage between calls,
and `replies` says what an answer means.
"""
