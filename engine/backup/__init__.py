"""Backup and restore of one queue, under load: `ironclaim backup` and `ironclaim restore`
(docs/guides/backups.md)."""
