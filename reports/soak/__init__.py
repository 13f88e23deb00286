"""The page of a soak: memory and latency over time, each with its line."""
