"""The drill of a service of your own: what its `chaos.toml` says, its processes, and the commands `run` and `check`."""
