"""The runtime: what carries out a worker's decisions, with threads, child processes, signals and an event loop (DESIGN 3.7).

`executor` does what the step machine says, `running` runs the handlers: in threads, on a loop (`async_handlers`), several jobs at
once (`batches`; `batch_ends` is how each of them has ended), or in child processes (`children`, whose other side is
`handler_process`).
"""
