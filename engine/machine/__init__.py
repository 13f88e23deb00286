"""The step machine: what a worker does next, as pure code. Events go in, calls and timers come out (DESIGN 3.1).

`steps` is the machine itself, `step_values` its settings, events and actions; each other module is one of its parts. No thread,
socket, clock or client here: the worker process (`engine.runtime`) and the simulator carry out the same decisions.
"""
