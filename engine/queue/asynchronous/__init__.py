"""The asyncio interface of a queue; `make generate` makes the synchronous one from it."""
