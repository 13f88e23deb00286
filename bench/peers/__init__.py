"""`python -m bench peers`: other job queues beside this one, on one server and one machine, by the same measures.

`libraries.py` names them with their versions and settings, `environments.py` installs each into an environment of its own, and
`adapters/` holds one small program for each, which enqueues and works and records when each job was enqueued, started and ended.
`measures.py` takes the measures, `redelivery.py` kills workers, `table.py` prints what was found and writes `docs/peers.md`.
"""
