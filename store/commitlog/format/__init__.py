"""Bytes to values and back. Pure: no I/O, no state."""

__all__: list[str] = []
