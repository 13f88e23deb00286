"""The state machine: what a worker does next, as pure code. Events go in, calls and timers come out.

`machine` takes an event in, then plans what is to be done. `events` holds its events and actions, `settings`
its settings, and each other module is one of its parts. No thread, socket, clock or client here: the worker
process (`engine.worker.executor`) and the simulator carry out the same decisions.
"""
