"""What is no store, stores that are damaged, and what a reader may not: one clear error each, never a wrong body."""

__all__: list[str] = []
