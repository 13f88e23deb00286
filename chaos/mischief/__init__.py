"""Runs in which a foreign client meddles with a queue of an old format: it takes, ends, deletes, moves, doubles and promotes jobs
at random times, over the raw wire, while workers and producers of the engine are at work."""
