"""Delayed messages and their delivery."""

__all__: list[str] = []
