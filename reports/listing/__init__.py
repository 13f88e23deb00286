"""`python -m reports list`: all runs of a folder, as a table and as a page. No Spark."""
