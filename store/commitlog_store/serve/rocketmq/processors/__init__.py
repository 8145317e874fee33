"""Processors: each answers the request codes of one subject, as RocketMQ's classes of the same names do."""
