"""The way to the server. `scripts` loads and links the Lua, `call` binds one operation to a script and its
keys.

The drivers alone send calls: `driver` for threads, `async_driver` for asyncio. Both follow the same decisions
without I/O: `exchange` (one call in flight: answered, send again, wait or give up) and `handshake`.
`endpoint` says where the server is and within which times; `routes` and `resolver` find it behind sentinels
and clusters; `dialer` opens connections, and reads subscriptions; `connections` are those of drivers.
`gathering` sends what many threads enqueue at once, and `notifier` calls who waits for a publication.
"""
