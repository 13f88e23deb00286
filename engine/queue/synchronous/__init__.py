"""The synchronous interface of a queue, generated from `asynchronous`."""
