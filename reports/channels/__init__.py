"""Runs of channels (`spec.model` is "dsps"): what they plan, their frames, and their measures."""
