"""Verification of a store: queues, index and batches compared with the log, read only."""
