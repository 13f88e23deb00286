"""The chapters of a channel run: its clocks and the wrap, latency by fan-out, lag, rates, and its channels."""
