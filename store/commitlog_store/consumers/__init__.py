"""Consumers of an open store: groups, the queues they share, positions, and messages that are consumed again."""
