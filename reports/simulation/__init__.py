"""A queueing simulator: what a load does to shards and workers of which no machine here has so many."""
