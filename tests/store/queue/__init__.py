"""Consume queues: derived from the log."""
