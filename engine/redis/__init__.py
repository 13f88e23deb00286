"""The way to the server. `scripts` loads and links the Lua.

The drivers alone send calls: `driver` for threads, `async_driver` for asyncio, each with its connections.
Both follow the same decisions without I/O: `exchange` (one call in flight: answered, send again, wait or give
up) and `handshake`. `endpoint` says where the server is and within which times, and `resolver` finds it
behind sentinels and clusters; `dialer` opens connections, and reads subscriptions. `gathering` sends what
many threads or tasks enqueue at once.
"""
