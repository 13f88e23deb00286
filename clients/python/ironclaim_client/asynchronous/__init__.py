"""The client for asyncio; the folder `synchronous` beside it is generated from this one."""
