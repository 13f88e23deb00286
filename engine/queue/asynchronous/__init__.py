"""The asyncio interface of a queue, written by hand: the classes of `synchronous` are made from it."""
