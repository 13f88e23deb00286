"""The drill of channels: clocks that wrap in mid-load, subscribers that are killed, a server that is restarted and one that goes
back to a snapshot (`python -m chaos run channels`)."""
