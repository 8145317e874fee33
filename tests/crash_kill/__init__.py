"""Processes that write to a store and are killed: nothing they were promised may be lost."""

__all__: list[str] = []
