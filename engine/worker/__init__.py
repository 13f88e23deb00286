"""The worker: `worker` is the class that a service makes, `group` works off several queues in one process.

`machine` decides, as pure code; `executor` carries its decisions out. `handler_pool` runs the handlers: in
threads, on an event loop, several jobs at once, or in child processes (`child_processes`, whose other side is
`handler_process`). `runs` knows the runs under way, and has that loop. `connections` and `process` are what
workers of one process share; `several` has those that work together.
"""
