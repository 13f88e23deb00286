"""The asyncio interface of a channel; `make generate` makes the synchronous one from it."""
