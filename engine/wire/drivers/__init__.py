"""The drivers: they alone send calls to a server. `driver` is the synchronous one, `async_driver` the one for asyncio.

Both follow the same decisions without I/O: `in_flight` (one call on its way), `delivery` (send again, wait or give up),
`handshake`, `durability`. `endpoint` says where the server is and within which times; `connections` are the sockets.
"""
