"""The parts of a channel: its clock, its receipts, what its messages look like, its storages, and how a fetch waits. No I/O but
in the storages."""
