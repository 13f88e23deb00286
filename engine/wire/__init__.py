"""The way to the server: operations as plain values, the scripts that carry them out, and the drivers that send them.

`operations/` says what is asked and answered, `scripts.py` loads and links the Lua, `call.py` binds one operation to a script and
its keys, and `drivers/` sends calls, waits and sends again.
"""
