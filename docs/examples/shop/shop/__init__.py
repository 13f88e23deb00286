"""A shop that charges its customers by jobs."""
