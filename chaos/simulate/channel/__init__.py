"""The simulator of channels: publishers and subscribers, whose decisions are those of `engine.channel`, play against the real
scripts of DSPS."""
