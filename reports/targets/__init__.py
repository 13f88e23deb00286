"""Runs of other people's job queues, judged by what each promises itself: from histories, a sink, and the keys that were left."""
