"""The synchronous interface of a channel."""
