"""Many records at once, as functions over numpy and Arrow arrays."""

__all__: list[str] = []
