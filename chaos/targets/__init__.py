"""Drills of other people's job queues: the same faults and witnesses, and each judged by what it promises itself (`promises.py`)."""
