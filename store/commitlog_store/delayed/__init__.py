"""Delayed messages: who delivers them, how far each level was delivered, and what waits."""

__all__: list[str] = []
