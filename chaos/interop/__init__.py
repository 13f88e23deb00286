"""Runs in which original clients work on a queue beside the engine: real programs, one history, the same judge."""
