"""Drills of other people's job queues: the same faults and witnesses, judged by what each promises (`promises.py`)."""
