"""The history of a run: what each process sent and received, written by its observers and read by the
judge."""
