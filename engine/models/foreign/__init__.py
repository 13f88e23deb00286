"""The formats of other systems, each as a model."""
