"""Consume queues: where the messages of each queue lie in the log."""

__all__: list[str] = []
