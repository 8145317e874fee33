"""The owner of a store: what its puts do, what they answer, and what it leaves behind."""

__all__: list[str] = []
