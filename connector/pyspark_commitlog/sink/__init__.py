"""The Spark sink: batch writes and exactly-once streaming writes."""

__all__: list[str] = []
