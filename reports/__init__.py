"""The judge: reads the history of a run with Spark and decides valid, violated or unknown. Never imports redis."""
