"""The job API, and that of Bananas."""
