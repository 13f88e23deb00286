"""The asyncio interface of a channel, written by hand: `make generate` makes `synchronous` of it."""
