"""Consume queues: the places of each queue's messages in the log."""
