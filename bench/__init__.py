"""Load for Ironclaim: the seeded workload, its handlers, and the Locust users that send it."""
