"""The asyncio interface of a channel, written by hand: the classes of `synchronous` are made from it."""
