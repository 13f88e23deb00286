"""`python -m reports compare`: is B faster than A, by how much, or is there no difference that these repetitions can show."""
