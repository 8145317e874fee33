"""Replication: the master, the follower, and both together."""
