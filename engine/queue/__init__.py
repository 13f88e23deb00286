"""A queue and its parts: what hangs on it as an attribute, `queue.jobs`, `.dead`, `.events`, `.results`,
`.schedules`, `.workers` and its locks.

`asynchronous` has the interface for asyncio; that of `synchronous` is generated from it (`make generate`).
What needs no connection is here, once for both: checks (`settings`, `producing`), values, and the steps of
what takes several calls (`admin`, `scheduling`, `workflows`), which a queue carries out and the simulator
interrupts anywhere.
"""
