"""Capacity: which rate a setting sustains at a target of latency, measured, predicted, and the prediction verified."""
