"""The step machine: what a worker does next, as pure code. Events go in, calls and timers come out (DESIGN 3.1).

`steps` is the machine itself: it takes an event in (`learning`), then looks what is to be done (`deciding`). `step_values` are
its settings, events and actions, `state` is what it is made of, and each other module is one of these parts. No thread, socket,
clock or client here: the worker process (`engine.runtime`) and the simulator carry out the same decisions.
"""
