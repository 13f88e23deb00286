"""The client for threads, generated from the folder `asynchronous` beside it."""
