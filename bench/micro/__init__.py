"""The micro-benchmarks of the engine, each as a ratio to something simpler that ran in the same minutes (`make bench-engine`).

The server is on CPU 0 and the client on CPU 1, because a round trip between two cores costs more than one within a core, and a
scheduler that changes its mind changes every number. What is compared takes turns, so that a neighbour disturbs both.
"""
