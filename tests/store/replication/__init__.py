"""Replication: the master, the follower, and both together."""

__all__: list[str] = []
