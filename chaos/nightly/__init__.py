"""The nightly: a short drill of each model on each of its topologies, with faults that change from night to night."""
