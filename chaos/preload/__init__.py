"""A small library inside the processes of a drill, for what cannot be done from outside: wall clocks, syncs, host names."""
