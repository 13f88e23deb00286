"""The parts of a queue: what hangs on it as an attribute, and the steps without I/O that its two faces carry out.

`queue.jobs`, `.dead`, `.events`, `.results`, `.schedules`, `.workers` and its locks are the modules of those names, each for both
faces. Their steps are written once: `producing` (enqueue), `administering`, `altering`, `clearing`, `scheduling`. `face` says
what steps are, `surface` is what `Queue` and `AsyncQueue` have in common.
"""
