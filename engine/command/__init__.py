"""The console command `ironclaim` (also `python -m engine`): workers, and a look at queues from a terminal.

Settings come from arguments, then from environment variables (`IRONCLAIM_URL` for `--url`); the library
itself reads `IRONCLAIM_OBSERVER` alone.
"""
