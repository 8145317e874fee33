"""Stores that RocketMQ wrote; see README.md."""

__all__: list[str] = []
