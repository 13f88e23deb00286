"""The synchronous interface of a channel, generated from `asynchronous` but for `waiting`."""
