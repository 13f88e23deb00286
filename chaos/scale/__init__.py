"""A run whose load doubles twice and falls again, while the number of workers follows the metrics of the queue."""
