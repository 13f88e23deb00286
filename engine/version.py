"""The version of the package, which pyproject.toml and the histories of runs take from here."""

__version__ = "0.1.0"
