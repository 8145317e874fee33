"""Consume queues: the places of each queue's messages in the log."""

__all__: list[str] = []
