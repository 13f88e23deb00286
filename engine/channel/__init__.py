"""A durable channel in the format of DSPS, and where its messages are.

`asynchronous` has the interface for asyncio; that of `synchronous` is generated from it (`make generate`).
What a call does is decided without I/O: steps of a channel with one storage (`one_storage`) or several
(`several_storages`, `merge`, `health`, `suspect_cursors`), what is remembered of a storage between calls
(`session_state`), and what replies mean (`replies`).
"""
