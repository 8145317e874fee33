"""How a store is opened: the decision, and what it takes."""

__all__: list[str] = []
