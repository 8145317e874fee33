"""How a store is opened: the decision, and recovery."""

__all__: list[str] = []
