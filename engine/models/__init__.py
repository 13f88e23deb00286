"""Models: each maps the engine's operations to calls on one data model in Redis."""
