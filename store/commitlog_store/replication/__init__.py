"""Replication: a second copy of the log, by RocketMQ's own protocol (``format/ha_transfer.py``)."""
