"""The asyncio interface of a queue, written by hand: `make generate` makes `synchronous` of it."""
