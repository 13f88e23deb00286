"""The step machine: what a worker does next, as pure code. Events go in, calls and timers come out.

`steps` is the machine itself: it takes an event in (`replies`), then plans what is to be done (`plan`).
`events` holds its settings, events and actions, `state` is what it is made of, and each other module is one
of these parts. No thread, socket, clock or client here: the worker process (`engine.worker.executor`) and the
simulator carry out the same decisions.
"""
