"""Verification of a store: queues, index and batches compared with the log, read only."""

__all__: list[str] = []
