"""The synchronous interface of a channel, generated from `asynchronous`."""
