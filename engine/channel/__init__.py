"""A durable channel in the format of DSPS, and where its messages are.

`asynchronous` has the interface for asyncio; that of `synchronous` is generated from it (`make generate`).
What a call does is decided without I/O. `one_storage` and `several_storages` have its steps; `session_state`
remembers a storage between calls; `replies` says what an answer means.
"""
