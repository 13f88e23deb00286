"""The synchronous interface of a queue."""
