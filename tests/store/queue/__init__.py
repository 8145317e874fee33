"""Consume queues: derived from the log."""

__all__: list[str] = []
