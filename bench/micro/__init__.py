"""Micro-benchmarks of the engine, each reported as a ratio to a simpler baseline measured at the same time (`make
bench-engine`).

The server is pinned to CPU 0 and the client to CPU 1, because a round trip between two cores costs more than one within a core,
so migrations by the scheduler would change every number. Both sides of a comparison alternate, so that other load on the
machine affects both.
"""
