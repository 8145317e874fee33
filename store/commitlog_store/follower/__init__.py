"""Mirrors: a store that follows the log of another one over the network."""

__all__: list[str] = []
