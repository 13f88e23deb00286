"""The drill: real server, real workers, real load, faults with witnesses, and then the judge (`python -m chaos run bench`)."""
