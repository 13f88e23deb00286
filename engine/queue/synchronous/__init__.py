"""The synchronous interface of a queue, generated from `asynchronous` but for `end_listeners`."""
