"""Load for Ironclaim: the seeded workload, the handlers of its jobs, and the Locust users that send it."""
