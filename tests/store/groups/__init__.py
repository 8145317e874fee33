"""Consumer groups of a store."""

__all__: list[str] = []
