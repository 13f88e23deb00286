"""Load on channels: the seeded plan, the publishers that send it, and the subscribers that read it."""
